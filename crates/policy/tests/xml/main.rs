//! The XML of policies, as programs and people write it.
#![forbid(unsafe_code)]

mod additional;
mod broken;
mod database;
mod hostile;
mod texts;
mod vocabulary;
mod written;
