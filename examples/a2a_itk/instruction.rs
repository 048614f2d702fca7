//! The kit's instruction, a protobuf message (`itk.Instruction`): what an agent is to do, and what the next one is.

/// Nesting of series within one message. The instruction for the next agent is not read here.
const MAX_DEPTH: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Instruction {
    Call(CallInstruction),
    Respond {
        text: String,
        /// Whether the task goes on working after its response, until it is canceled.
        hold: bool,
    },
    Series(Vec<Instruction>),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CallInstruction {
    pub(crate) transport: String,
    pub(crate) card_uri: String,
    /// The instruction for the called agent, encoded.
    pub(crate) instruction: Vec<u8>,
    pub(crate) streaming: bool,
    pub(crate) behaviour: CallBehaviour,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum CallBehaviour {
    #[default]
    SendMessage,
    /// The events are also sent to the receiver at this URL.
    PushNotification { url: String },
    /// Disconnects after the first event, subscribes again, and cancels the task in the end.
    Resubscribe,
}

impl Instruction {
    /// Reads an instruction; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        Self::decode_within(bytes, MAX_DEPTH)
    }

    fn decode_within(bytes: &[u8], depth: usize) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        let mut found = None;
        for (number, value) in fields(bytes)? {
            match (number, value) {
                (1, Value::Bytes(call)) => found = Some(Self::Call(CallInstruction::decode(call)?)),
                (2, Value::Bytes(response)) => found = Some(Self::decode_response(response)?),
                (3, Value::Bytes(series)) => {
                    let mut steps = vec![];
                    for (number, value) in fields(series)? {
                        // The second field says how responses are put together, and knows one way.
                        if let (1, Value::Bytes(step)) = (number, value) {
                            steps.push(Self::decode_within(step, depth)?);
                        }
                    }
                    found = Some(Self::Series(steps));
                }
                _ => {}
            }
        }
        found
    }

    fn decode_response(bytes: &[u8]) -> Option<Self> {
        let (mut text, mut hold) = (String::new(), false);
        for (number, value) in fields(bytes)? {
            match (number, value) {
                (1, value) => text = value.text()?,
                (2, Value::Number(value)) => hold = value != 0,
                _ => {}
            }
        }
        Some(Self::Respond { text, hold })
    }

    /// Whether the task is to be held.
    pub(crate) fn holds(&self) -> bool {
        match self {
            Self::Call(_) => false,
            Self::Respond { hold, .. } => *hold,
            Self::Series(steps) => steps.iter().any(Self::holds),
        }
    }
}

impl CallInstruction {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut call = Self::default();
        for (number, value) in fields(bytes)? {
            match (number, value) {
                (1, value) => call.transport = value.text()?,
                (2, value) => call.card_uri = value.text()?,
                (3, Value::Bytes(instruction)) => call.instruction = instruction.to_vec(),
                (4, Value::Number(value)) => call.streaming = value != 0,
                (5, _) => call.behaviour = CallBehaviour::SendMessage,
                (6, Value::Bytes(push)) => {
                    let url = fields(push)?.into_iter().find(|(number, _)| *number == 1);
                    let url = url.map_or(Some(String::new()), |(_, url)| url.text())?;
                    call.behaviour = CallBehaviour::PushNotification { url };
                }
                (7, _) => call.behaviour = CallBehaviour::Resubscribe,
                _ => {}
            }
        }
        Some(call)
    }
}

/// A field's value in protobuf's encoding.
#[derive(Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl Value<'_> {
    fn text(self) -> Option<String> {
        match self {
            Self::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok(),
            Self::Number(_) => None,
        }
    }
}

/// The fields of a message. Groups and fixed widths do not occur in an instruction.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut fields = vec![];
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut bytes)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (value, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                Value::Bytes(value)
            }
            _ => return None,
        };
        fields.push((tag >> 3, value));
    }
    Some(fields)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
