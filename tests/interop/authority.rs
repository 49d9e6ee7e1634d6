//! Authorities and certificates for a scenario, made by the tools operators have: strongSwan's `pki`, `openssl` and
//! `vpnctl pki`.

use crate::own_authority;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The program that makes keys and certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    Pki,
    OpenSsl,
    /// `vpnctl pki`.
    Vpnctl,
}

/// Kind of every key, authorities' too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Rsa(u16),
    Ecdsa(u16),
    Ed25519,
}

/// How both sides name themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// By the domain name among the alternative names of their certificates.
    DomainName,
    /// By the subject of their certificates.
    Subject,
}

/// Where `vpnd` may find the list of what was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// The policy does not ask for it.
    Unused,
    /// Nowhere.
    Absent,
    /// In a file.
    File,
    /// Where the certificates say, on strongSwan's host.
    Http,
}

/// Properties of the certificates.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub maker: Maker,
    pub key: Key,
    pub naming: Naming,
    /// The certificates come from an authority below the one that is trusted.
    pub intermediate: bool,
    pub revocation: Revocation,
    /// strongSwan's certificate is on the list.
    pub revoked: bool,
    /// strongSwan's certificate is no longer valid.
    pub expired: bool,
    /// `vpnd` trusts another authority than strongSwan's.
    pub stranger: bool,
    /// The host that strongSwan's certificate is made out to.
    pub host: &'static str,
    /// The private keys of both sides are in one PKCS#11 token; `vpnctl pki` has made them.
    pub token: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            maker: Maker::Pki,
            key: Key::Ecdsa(256),
            naming: Naming::DomainName,
            intermediate: false,
            revocation: Revocation::Unused,
            revoked: false,
            expired: false,
            stranger: false,
            host: HOSTS[1],
            token: false,
        }
    }
}

/// The names of `vpnd` and strongSwan in the policy.
pub const HOSTS: [&str; 2] = ["left.example.net", "right.example.net"];
/// Where the certificates say that the list is.
const LIST_URL: &str = "http://192.0.2.2:8080/list.crl";
pub const LIST_PORT: u16 = 8080;

/// Parts of a subject, most significant first.
fn subject(name: &str) -> [(&'static str, String); 3] {
    [("C", "NL".into()), ("O", "Example".into()), ("CN", name.into())]
}

/// A subject as strongSwan writes it.
pub fn comma_form(name: &str) -> String {
    subject(name).map(|(key, value)| format!("{key}={value}")).join(", ")
}

/// A subject as OpenSSL and AIX write it.
pub fn slash_form(name: &str) -> String {
    subject(name).map(|(key, value)| format!("/{key}={value}")).concat()
}

/// Files of one authority.
struct Authority {
    certificate: PathBuf,
    key: PathBuf,
}

impl Plan {
    /// Makes everything: for `vpnd` below `vpnd` as its configuration expects it, for strongSwan below `charon` as
    /// swanctl expects it. The list, whether or not `vpnd` has it, is `list.crl` in `directory`.
    pub fn make(&self, directory: &Path, vpnd: &Path, charon: &Path) -> Result<(), String> {
        if self.maker == Maker::Vpnctl {
            return own_authority::make(self, directory, vpnd, charon);
        }
        let make = |path: PathBuf| {
            fs::create_dir_all(&path).map_err(|error| error.to_string()).map(|()| path)
        };
        let [ca, certs, private, crls] = ["ca", "certs", "private", "crls"].map(|d| vpnd.join(d));
        let [x509ca, x509, theirs] = ["x509ca", "x509", "private"].map(|d| charon.join(d));
        for path in [directory.to_owned(), ca.clone(), certs.clone(), private.clone(), crls.clone()]
        {
            make(path)?;
        }
        for path in [&x509ca, &x509, &theirs] {
            make(path.clone())?;
        }
        let work = Workshop { directory, plan: self };
        let root = work.authority("root", None)?;
        let sub = if self.intermediate { Some(work.authority("sub", Some(&root))?) } else { None };
        let issuing = sub.as_ref().unwrap_or(&root);
        work.issue("left", HOSTS[0], issuing, false)?;
        work.issue("right", self.host, issuing, self.expired)?;
        let revoked = self.revoked.then_some("right");
        work.list("list", issuing, revoked)?;

        let trusted = if self.stranger { "stranger" } else { "root" };
        if self.stranger {
            work.authority(trusted, None)?;
        }
        work.copy(&format!("{trusted}.pem"), &ca)?;
        work.copy("root.pem", &x509ca)?;
        if sub.is_some() {
            // Each side has its own chain and has to be sent the other's.
            work.copy("sub.pem", &certs)?;
            work.copy("sub.pem", &x509)?;
            work.list("root", &root, None)?;
        }
        work.copy("left.pem", &certs)?;
        work.copy("left.key", &private)?;
        work.copy("right.pem", &x509)?;
        work.copy("right.key", &theirs)?;
        if self.revocation == Revocation::File {
            work.copy("list.crl", &crls)?;
            if sub.is_some() {
                work.copy("root.crl", &crls)?;
            }
        }
        Ok(())
    }

    /// Puts strongSwan's certificate on the list that `vpnd` has in a file.
    pub fn revoke(&self, directory: &Path, vpnd: &Path) -> Result<(), String> {
        if self.maker == Maker::Vpnctl {
            return own_authority::revoke(directory, vpnd);
        }
        let work = Workshop { directory, plan: self };
        let name = if self.intermediate { "sub" } else { "root" };
        let issuing = Authority {
            certificate: work.path(&format!("{name}.pem")),
            key: work.path(&format!("{name}.key")),
        };
        work.list("list", &issuing, Some("right"))?;
        work.copy("list.crl", &vpnd.join("crls"))
    }
}

/// Runs the tools.
struct Workshop<'a> {
    directory: &'a Path,
    plan: &'a Plan,
}

impl Workshop<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn copy(&self, name: &str, to: &Path) -> Result<(), String> {
        let error = |error| format!("{name} to {}: {error}", to.display());
        fs::copy(self.path(name), to.join(name)).map(drop).map_err(error)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(self.directory)
            .output()
            .map_err(|error| format!("{program}: {error}"))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{program} {}: {}\n{said}", arguments.join(" "), output.status))
    }

    /// Runs `pki`, which prints what it makes.
    fn pki(&self, into: &str, arguments: &[&str]) -> Result<(), String> {
        let made = self.run("pki", arguments)?;
        let mut file = private_file(&self.path(into)).map_err(|error| error.to_string())?;
        file.write_all(&made).map_err(|error| error.to_string())
    }

    /// Makes a key and its file.
    fn key(&self, name: &str) -> Result<(), String> {
        let file = format!("{name}.key");
        let (kind, size) = match self.plan.key {
            Key::Rsa(bits) => ("rsa", Some(bits.to_string())),
            Key::Ecdsa(bits) => ("ecdsa", Some(bits.to_string())),
            Key::Ed25519 => ("ed25519", None),
        };
        match self.plan.maker {
            Maker::Vpnctl => Err(ELSEWHERE.to_owned()),
            Maker::Pki => {
                let size = size.as_deref().map_or(vec![], |size| vec!["--size", size]);
                let arguments =
                    [&["--gen", "--outform", "pem", "--type", kind], &size[..]].concat();
                self.pki(&file, &arguments)
            }
            Maker::OpenSsl => {
                let option = match self.plan.key {
                    Key::Rsa(bits) => Some(format!("rsa_keygen_bits:{bits}")),
                    Key::Ecdsa(256) => Some("ec_paramgen_curve:P-256".into()),
                    Key::Ecdsa(bits) => Some(format!("ec_paramgen_curve:P-{bits}")),
                    Key::Ed25519 => None,
                };
                let kind = if kind == "ecdsa" { "EC" } else { kind };
                let option = option.as_deref().map_or(vec![], |option| vec!["-pkeyopt", option]);
                let out = ["genpkey", "-out", &file, "-algorithm", kind];
                drop(private_file(&self.path(&file)).map_err(|error| error.to_string())?);
                self.run("openssl", &[&out, &option[..]].concat()).map(drop)
            }
        }
    }

    /// Makes an authority, signed by another or by itself.
    fn authority(&self, name: &str, above: Option<&Authority>) -> Result<Authority, String> {
        self.key(name)?;
        let certificate = format!("{name}.pem");
        let key = format!("{name}.key");
        let dn = comma_form(&format!("{name} authority"));
        match (self.plan.maker, above) {
            (Maker::Vpnctl, _) => return Err(ELSEWHERE.to_owned()),
            (Maker::Pki, None) => self.pki(
                &certificate,
                &[
                    "--self",
                    "--ca",
                    "--in",
                    &key,
                    "--dn",
                    &dn,
                    "--outform",
                    "pem",
                    "--lifetime",
                    "30",
                ],
            )?,
            (Maker::Pki, Some(above)) => {
                let [issuer, issuer_key] =
                    [&above.certificate, &above.key].map(|p| p.display().to_string());
                self.pki(
                    &certificate,
                    &[
                        "--issue",
                        "--ca",
                        "--in",
                        &key,
                        "--type",
                        "priv",
                        "--cacert",
                        &issuer,
                        "--cakey",
                        &issuer_key,
                        "--dn",
                        &dn,
                        "--outform",
                        "pem",
                        "--lifetime",
                        "20",
                    ],
                )?;
            }
            (Maker::OpenSsl, above) => {
                self.openssl_issue(
                    name,
                    &format!("{name} authority"),
                    above,
                    AUTHORITY_EXTENSIONS,
                    false,
                )?;
            }
        }
        Ok(Authority { certificate: self.path(&certificate), key: self.path(&key) })
    }

    /// Makes a key and a certificate for a host.
    fn issue(
        &self,
        name: &str,
        host: &str,
        issuer: &Authority,
        expired: bool,
    ) -> Result<(), String> {
        self.key(name)?;
        let with_list = matches!(self.plan.revocation, Revocation::Http | Revocation::Absent);
        if self.plan.maker == Maker::OpenSsl {
            let list = if with_list {
                format!("crlDistributionPoints = URI:{LIST_URL}\n")
            } else {
                String::new()
            };
            let extensions = format!(
                "basicConstraints = CA:FALSE\nkeyUsage = digitalSignature\nsubjectAltName = DNS:{host}\n\
                 subjectKeyIdentifier = hash\nauthorityKeyIdentifier = keyid\n{list}"
            );
            return self.openssl_issue(name, host, Some(issuer), &extensions, expired);
        }
        let [ca, ca_key] = [&issuer.certificate, &issuer.key].map(|p| p.display().to_string());
        let (key, dn) = (format!("{name}.key"), comma_form(host));
        let mut arguments = vec![
            "--issue",
            "--in",
            &key,
            "--type",
            "priv",
            "--cacert",
            &ca,
            "--cakey",
            &ca_key,
            "--dn",
            &dn,
            "--san",
            host,
            "--flag",
            "serverAuth",
            "--outform",
            "pem",
        ];
        match expired {
            true => arguments.extend([
                "--not-before",
                "01.01.20 00:00:00",
                "--not-after",
                "31.12.20 00:00:00",
            ]),
            false => arguments.extend(["--lifetime", "10"]),
        }
        if with_list {
            arguments.extend(["--crl", LIST_URL]);
        }
        self.pki(&format!("{name}.pem"), &arguments)
    }

    /// Signs with `openssl ca`, the one of its commands that can date back and keeps what a list is made from.
    fn openssl_issue(
        &self,
        name: &str,
        common_name: &str,
        issuer: Option<&Authority>,
        extensions: &str,
        expired: bool,
    ) -> Result<(), String> {
        let write = |file: &str, text: &str| {
            fs::write(self.path(file), text).map_err(|error| format!("{file}: {error}"))
        };
        self.openssl_database()?;
        write("extensions.cnf", extensions)?;
        let (key, request) = (format!("{name}.key"), format!("{name}.csr"));
        let subject = slash_form(common_name);
        self.run(
            "openssl",
            &[
                "req", "-new", "-config", "ca.cnf", "-key", &key, "-subj", &subject, "-out",
                &request,
            ],
        )?;
        let certificate = format!("{name}.pem");
        let mut arguments = vec![
            "ca",
            "-batch",
            "-config",
            "ca.cnf",
            "-notext",
            "-extfile",
            "extensions.cnf",
            "-in",
            &request,
            "-out",
            &certificate,
            "-rand_serial",
        ];
        let issued;
        match issuer {
            Some(issuer) => {
                issued = [&issuer.certificate, &issuer.key].map(|p| p.display().to_string());
                arguments.extend(["-cert", &issued[0], "-keyfile", &issued[1]]);
            }
            None => arguments.extend(["-selfsign", "-keyfile", &key]),
        }
        match expired {
            true => {
                arguments.extend(["-startdate", "20200101000000Z", "-enddate", "20201231000000Z"])
            }
            false => arguments.extend(["-days", "10"]),
        }
        self.run("openssl", &arguments).map(drop)
    }

    fn openssl_database(&self) -> Result<(), String> {
        if self.path("ca.cnf").exists() {
            return Ok(());
        }
        for (name, content) in [("index.txt", ""), ("crlnumber", "01\n")] {
            fs::write(self.path(name), content).map_err(|error| error.to_string())?;
        }
        fs::write(self.path("ca.cnf"), format!(
            "[ca]\ndefault_ca = here\n[here]\ndatabase = {}\ncrlnumber = crlnumber\nserial = serial\nnew_certs_dir = {}\ndefault_md = default\n\
             policy = any\nunique_subject = no\ndefault_crl_days = 5\n\
             [any]\ncountryName = optional\norganizationName = optional\ncommonName = supplied\n\
             [req]\ndistinguished_name = name\n[name]\n",
            self.text("index.txt"),
            self.directory.display(),
        )).map_err(|error| error.to_string())
    }

    /// Makes the list of an authority.
    fn list(&self, name: &str, issuer: &Authority, revoked: Option<&str>) -> Result<(), String> {
        let file = format!("{name}.crl");
        let [ca, ca_key] = [&issuer.certificate, &issuer.key].map(|p| p.display().to_string());
        let certificate = revoked.map(|name| format!("{name}.pem"));
        match self.plan.maker {
            Maker::Vpnctl => Err(ELSEWHERE.to_owned()),
            Maker::Pki => {
                let mut arguments =
                    vec!["--signcrl", "--cacert", &ca, "--cakey", &ca_key, "--lifetime", "5"];
                if let Some(certificate) = &certificate {
                    arguments.extend(["--reason", "key-compromise", "--cert", certificate]);
                }
                self.pki(&file, &arguments)
            }
            Maker::OpenSsl => {
                let common =
                    ["ca", "-batch", "-config", "ca.cnf", "-cert", &ca, "-keyfile", &ca_key];
                if let Some(certificate) = &certificate {
                    let revoke = ["-revoke", certificate, "-crl_reason", "keyCompromise"];
                    self.run("openssl", &[&common[..], &revoke].concat())?;
                }
                let list = ["-gencrl", "-out", "list.pem"];
                self.run("openssl", &[&common[..], &list].concat())?;
                let to_der = ["crl", "-in", "list.pem", "-outform", "der", "-out", &file];
                self.run("openssl", &to_der).map(drop)
            }
        }
    }
}

const ELSEWHERE: &str = "own_authority.rs makes the certificates of vpnctl pki";

const AUTHORITY_EXTENSIONS: &str = "basicConstraints = critical, CA:TRUE\n\
                                    keyUsage = critical, keyCertSign, cRLSign\n\
                                    subjectKeyIdentifier = hash\n";

/// A file that only its owner may read.
fn private_file(path: &Path) -> std::io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Serves one file over HTTP until the test ends, and counts how often.
pub fn serve(listener: TcpListener, file: PathBuf) -> Arc<AtomicUsize> {
    let served = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&served);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = Vec::new();
            let mut octet = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read_exact(&mut octet).is_ok() {
                request.push(octet[0]);
            }
            let body = fs::read(&file).unwrap_or_default();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            // A client that has gone wants nothing any more.
            let _ = stream.write_all(&[head.as_bytes(), &body].concat());
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    served
}
