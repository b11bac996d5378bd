//! Go's peculiarities that clients see: how its standard library and the libraries of upstream
//! parse and print. Each file imitates one of their packages, messages included.

pub mod base64;
mod duration;
pub mod cron;
mod print;
pub mod quantity;
pub mod regexp;
pub mod url;

pub use duration::parse_duration;
pub use print::{
    json, json_string, quote, quote_all, sprint, sprint_float, sprint_number, syntax, type_name,
};
