//! `nuncio cert self-signed`: a certificate and its key for a look at TLS, without a CA. Clients trust it by its file.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use clap::{Args, Subcommand};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose};
use url::Host;

use super::{error::CliError, output, program, server_connection::quoted};

const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";
/// The names of this machine, where none is given.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest validity: a hundred years.
const MAX_DAYS: u32 = 36_500;

#[derive(Subcommand)]
pub(crate) enum CertCommand {
    /// Write a certificate and its key that no CA has signed: for a look, and for machines that trust the file
    SelfSigned(SelfSignedFlags),
}

#[derive(Args)]
pub(crate) struct SelfSignedFlags {
    /// A name or address of the server. Repeatable. Default: localhost, 127.0.0.1 and ::1
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// For how many days the certificate is valid
    #[arg(long, default_value_t = 90, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DAYS)))]
    days: u32,
    /// The folder that cert.pem and key.pem are written to
    #[arg(long, default_value = ".", value_name = "DIR")]
    out: PathBuf,
    /// Replace the files if they exist
    #[arg(long)]
    force: bool,
}

impl CertCommand {
    pub(crate) fn run(self) -> Result<(), CliError> {
        let Self::SelfSigned(flags) = self;
        flags.run()
    }
}

impl SelfSignedFlags {
    fn run(self) -> Result<(), CliError> {
        let (certificate, key) = (self.out.join(CERTIFICATE), self.out.join(KEY));
        if let Some(there) = [&certificate, &key].into_iter().find(|path| !self.force && path.exists()) {
            return Err(CliError::Usage(format!(
                "{} exists: name another folder with --out, or replace it with --force",
                there.display()
            )));
        }
        let hosts = if self.hosts.is_empty() { LOCAL.map(str::to_owned).into() } else { self.hosts.clone() };
        if let Some(wrong) = hosts.iter().find(|host| !is_host(host)) {
            let why = "expected a name such as agents.example.com, or an address";
            return Err(CliError::Usage(format!("--host {wrong:?}: {why}")));
        }
        let made = self_signed(&hosts, self.days);
        let (certificate_text, key_text) = made
            .map_err(|error| CliError::Usage(format!("no certificate for {}: {error}", hosts.join(", "))))?;
        let written = fs::create_dir_all(&self.out)
            .and_then(|()| write(&key, 0o600, &key_text))
            .and_then(|()| write(&certificate, 0o644, &certificate_text));
        written
            .map_err(|error| CliError::Usage(format!("cannot write to {}: {error}", self.out.display())))?;
        output::text(&self.instructions(&certificate, &key, &hosts[0]))
    }

    fn instructions(&self, certificate: &Path, key: &Path, host: &str) -> String {
        let absolute =
            |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
        let (certificate, key) = (absolute(certificate), absolute(key));
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let (file, program) = (quoted(&certificate), program());
        format!(
            "In nuncio.toml:\n  tls-cert = {certificate:?}\n  tls-key = {key:?}\n\nThen try:\n  \
             {program} serve\n  curl --cacert {file} https://{host}:8080/healthz\n  \
             {program} send --ca-cert {file} -a https://{host}:8080 \"Hello\"\n\n\
             It is valid for {} days. Clients trust it only where they are given the file.\n",
            self.days
        )
    }
}

/// Whether a text is the name of a host, or an address.
fn is_host(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || Host::parse(text).is_ok_and(|host| matches!(host, Host::Domain(_)))
}

/// The certificate and the key, in PEM.
fn self_signed(hosts: &[String], days: u32) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(hosts)?;
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(since_1970.as_secs());
    // Valid a little earlier, for clients whose clock is behind.
    params.not_before = now - Duration::from_secs(60 * 60);
    params.not_after = now + DAY * days;
    params.distinguished_name.push(DnType::CommonName, "nuncio (self-signed)");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// Writes a file as a whole: it is renamed into place, so that a running server never reads half of it.
fn write(path: &Path, mode: u32, text: &str) -> io::Result<()> {
    let draft = path.with_extension("pem.new");
    let removed = fs::remove_file(&draft);
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)
}
