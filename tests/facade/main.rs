//! The library as a program embeds it: started, watched, dropped and stopped inside network namespaces.
#![forbid(unsafe_code)]

mod counting;
mod ending;
mod example;
mod findings;
mod in_process;
mod nft;
mod packet_filter;
mod plane;
mod reload;
mod responder;
mod side;
mod starting;
mod why;

fn main() -> std::process::ExitCode {
    let trials = [
        ending::trials(),
        example::trials(),
        findings::trials(),
        in_process::trials(),
        packet_filter::trials(),
        plane::trials(),
        reload::trials(),
        responder::trials(),
        starting::trials(),
        why::trials(),
    ];
    testkit::run(trials.into_iter().flatten().collect())
}
