//! A minimal image and a minimal sound.

#![allow(clippy::expect_used, reason = "two constants of the program")]

use base64::{Engine as _, engine::general_purpose::STANDARD};
use nuncio::engine::surface::ContentBlock;

const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";
const WAV: &str = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==";

/// One pixel, as a PNG file.
pub(crate) fn png() -> Vec<u8> {
    STANDARD.decode(PNG).expect("it is base64")
}

/// The pixel as a content block.
pub(crate) fn image() -> ContentBlock {
    ContentBlock::Image { data: png(), media_type: "image/png".into() }
}

/// A millisecond of silence as a content block.
pub(crate) fn audio() -> ContentBlock {
    ContentBlock::Audio { data: STANDARD.decode(WAV).expect("it is base64"), media_type: "audio/wav".into() }
}
