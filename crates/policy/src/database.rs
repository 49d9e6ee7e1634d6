//! Policy objects by name, as AIX keeps them: objects of a policy file outlive the file, and the next one may refer
//! to it.
//!
//! ```
//! use policy::Database;
//! use policy::database::{Kind, PutOptions, Selection};
//!
//! let file = "<AIX_VPN Version='2.1'>
//!   <IPSecProposal IPSec_ProposalName='gcm'>
//!     <IPSecESPProtocol ESP_Encryption='ESP_AES256_GCM_16'/>
//!   </IPSecProposal>
//! </AIX_VPN>";
//! let put = Database::default().put("gcm.xml", file, &PutOptions::default())?;
//! assert_eq!(put.changes[0].to_string(), "new       IPSecProposal gcm");
//!
//! // A second one of that name has to be meant.
//! assert!(put.database.put("gcm.xml", file, &PutOptions::default()).is_err());
//!
//! let gcm = Selection { kind: Some(Kind::IpsecProposal), name: Some("gcm".into()), id_type: None };
//! assert_eq!(put.database.select(&gcm, false)?.len(), 1);
//! assert!(put.database.delete(&gcm)?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod contents;
mod merge;
mod names;
mod object;
mod put;
mod references;
mod selection;

pub use contents::Database;
pub use merge::PutOptions;
pub use object::{Kind, Object, UnknownKind};
pub use put::{Change, Effect, Mirrored, Put, mirror};
pub use selection::{DatabaseError, Selection};
