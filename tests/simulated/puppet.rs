//! A peer that sends any message that a test wants: it has the keys of an IKE SA with one gateway, and no mind of its
//! own.

use crate::{SOON, calm};
use crypto::{Cipher, Provider, Suite};
use esp::plane::Spi;
use ike::Config;
use ike::crypto::key_exchange::PrivateKey;
use ike::crypto::prf::{prf, prf_plus};
use ike::negotiation::proposal::{Offered, offer_child, offer_ike};
use ike::negotiation::selectors;
use ike::wire::fragment::Cut;
use ike::wire::header::{Header, IkeSpi};
use ike::wire::payload::{Delete, Identification, Notify, Payload};
use ike::wire::protected::{self, Content};
use ike::wire::registry::{AuthMethod, ExchangeType, GroupId, NotifyType, PayloadType};
use ike::wire::{fragment, message};
use policy::{Group, KeyBits, Policy, Prf, Secret};
use sim::host::Side;
use sim::link::{Content as Carried, Parcel};
use sim::{HostId, Site, World};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const SUITE: Suite = Suite::AesGcm16(KeyBits::B128);

/// The puppet's inbound SPI of the first Child SA.
pub const CHILD_SPI: Spi = Spi(0x7000_0001);

/// A peer at the site's right end without mind; the gateway is the left one.
pub struct Puppet {
    pub world: World,
    pub left: HostId,
    pub site: Site,
    /// Whether it began the IKE SA.
    pub initiator: bool,
    /// Initiator's, responder's.
    pub spis: (IkeSpi, IkeSpi),
    /// Payloads that it adds to its IKE_SA_INIT message.
    pub introduction: Vec<Payload>,
    /// Where it sends from and to.
    pub port: u16,
    key_exchange: Option<PrivateKey>,
    nonce: Vec<u8>,
    /// Both messages of IKE_SA_INIT.
    handshake: (Vec<u8>, Vec<u8>),
    peer_nonce: Vec<u8>,
    keys: Option<Keys>,
    next_request: u32,
    /// Requests of the gateway that came with its last answer.
    unanswered: Vec<(Header, Vec<u8>)>,
    sealed: u64,
    /// IKE SAs it has begun.
    calls: u64,
}

struct Keys {
    ours: Box<dyn Cipher>,
    theirs: Box<dyn Cipher>,
    our_proof: Secret,
}

/// A notification without SPI.
pub fn notify(kind: NotifyType, data: &[u8]) -> Payload {
    Payload::Notify(Notify::new(kind, data.to_vec()))
}

/// A payload of a type that nobody knows.
pub fn unknown() -> Payload {
    Payload::Other { kind: PayloadType(200), data: vec![1, 2, 3] }
}

/// The notifications among payloads.
pub fn notified(payloads: &[Payload]) -> Vec<NotifyType> {
    let kind = |p: &Payload| match p {
        Payload::Notify(n) => Some(n.kind),
        _ => None,
    };
    payloads.iter().filter_map(kind).collect()
}

fn only(mut messages: Vec<(Header, Vec<u8>)>) -> (Header, Vec<u8>) {
    assert_eq!(messages.len(), 1, "one message of the gateway, not {messages:?}");
    messages.remove(0)
}

impl Puppet {
    /// Neither side has said anything yet.
    pub fn new(site: &Site, config: Config) -> Self {
        Self::with_policy(site, site.policy(Side::Left), config)
    }

    /// The same, with another policy of the gateway.
    pub fn with_policy(site: &Site, policy: Arc<Policy>, config: Config) -> Self {
        let mut world = World::new(1);
        let left = world.add_host("left", site.left, policy, config);
        world.tap();
        Self {
            world,
            left,
            site: site.clone(),
            initiator: true,
            spis: (IkeSpi(0), IkeSpi(0)),
            introduction: Vec::new(),
            port: 500,
            key_exchange: Some(PrivateKey::generate(Group::Curve25519)),
            nonce: vec![0x5a; 32],
            handshake: Default::default(),
            peer_nonce: Vec::new(),
            keys: None,
            next_request: 0,
            unanswered: Vec::new(),
            sealed: 0,
            calls: 0,
        }
    }

    /// Begun by the puppet, with one Child SA.
    pub fn calling(site: &Site) -> Self {
        let mut puppet = Self::new(site, calm());
        puppet.call();
        let payloads = puppet.auth_payloads();
        let answer = puppet.request(ExchangeType::IKE_AUTH, &payloads);
        assert!(answer.iter().any(|p| matches!(p, Payload::Sa(_))), "{answer:?}");
        puppet
    }

    /// Begun by the gateway, with one Child SA.
    pub fn called(site: &Site) -> Self {
        let mut puppet = Self::new(site, calm());
        puppet.pick_up();
        let (request, _) = puppet.next_request();
        let payloads = puppet.auth_payloads();
        puppet.answer(&request, &payloads);
        assert_eq!(puppet.child_sas(), 1);
        puppet
    }

    // ---- IKE_SA_INIT

    /// The payloads of its IKE_SA_INIT message.
    pub fn init_payloads(&self) -> Vec<Payload> {
        let public = self.key_exchange.as_ref().expect("before the keys are made").public_value();
        let mut payloads = vec![
            Payload::Sa(offer_ike(&self.site.ike, &[])),
            Payload::KeyExchange { group: GroupId::from(Group::Curve25519), data: public.to_vec() },
            Payload::Nonce(self.nonce.clone()),
        ];
        payloads.extend(self.introduction.clone());
        payloads
    }

    /// Begins an IKE SA and makes its keys.
    pub fn call(&mut self) {
        self.call_with(|_| ());
    }

    /// The same with a first message that is changed before it is sent.
    pub fn call_with(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        self.initiator = true;
        self.spis = (IkeSpi(0x1111_2222_3333_4444 + self.calls), IkeSpi(0));
        self.calls += 1;
        let header = self.header(ExchangeType::IKE_SA_INIT, 0, false);
        let mut request = message::encode(&header, &self.init_payloads());
        change(&mut request);
        self.send(request.clone());
        let (header, response) = self.one_message();
        self.spis.1 = header.responder_spi;
        self.next_request = 1;
        self.make_keys(request, response);
    }

    /// Begins another IKE SA, and thinks no more of the one before.
    pub fn call_anew(&mut self) {
        self.forget_sent();
        self.key_exchange = Some(PrivateKey::generate(Group::Curve25519));
        self.call();
    }

    /// Has the gateway begin an IKE SA, answers, and makes its keys.
    pub fn pick_up(&mut self) {
        self.world.connect(self.left, Site::TUNNEL);
        self.pick_up_call();
    }

    /// Answers another IKE SA that the gateway has begun, and thinks no more of the one before.
    pub fn pick_up_anew(&mut self) {
        self.key_exchange = Some(PrivateKey::generate(Group::Curve25519));
        self.pick_up_call();
    }

    /// Answers the IKE SA that the gateway has begun, and makes its keys.
    pub fn pick_up_call(&mut self) {
        self.initiator = false;
        self.pass_time();
        let (header, request) = self.one_message();
        self.spis = (header.initiator_spi, IkeSpi(0x5555_6666_7777_8888));
        let response = message::encode(
            &self.header(ExchangeType::IKE_SA_INIT, 0, true),
            &self.init_payloads(),
        );
        self.send(response.clone());
        self.make_keys(request, response);
    }

    fn make_keys(&mut self, request: Vec<u8>, response: Vec<u8>) {
        let theirs = if self.initiator { &response } else { &request };
        let header = Header::parse(theirs).expect("a message");
        let payloads = message::decode(&header, theirs).expect("payloads");
        let mut public = Vec::new();
        for payload in payloads {
            match payload {
                Payload::KeyExchange { data, .. } => public = data,
                Payload::Nonce(nonce) => self.peer_nonce = nonce,
                _ => {}
            }
        }
        let key_exchange = self.key_exchange.take().expect("only once");
        let shared = key_exchange.agree(&public).expect("a public value");
        let nonces = match self.initiator {
            true => [self.nonce.clone(), self.peer_nonce.clone()],
            false => [self.peer_nonce.clone(), self.nonce.clone()],
        };
        // RFC 7296 §2.14
        let seed =
            prf(Provider::default(), Prf::HmacSha2_256, &nonces.concat(), &[shared.expose()]);
        let spis = [self.spis.0.0.to_be_bytes(), self.spis.1.0.to_be_bytes()].concat();
        let parts = [&nonces[0][..], &nonces[1], &spis];
        let material = prf_plus(
            Provider::default(),
            Prf::HmacSha2_256,
            seed.expose(),
            &parts,
            3 * 32 + 2 * 20,
        );
        let part = |from: usize, len: usize| Secret::new(material.expose()[from..][..len].to_vec());
        let cipher =
            |from| Provider::default().cipher(SUITE, &part(from, 20)).expect("it has AES-GCM");
        let [first, second] = [cipher(32), cipher(52)];
        let (ours, theirs) = if self.initiator { (first, second) } else { (second, first) };
        let our_proof = part(if self.initiator { 72 } else { 104 }, 32);
        self.keys = Some(Keys { ours, theirs, our_proof });
        self.handshake = (request, response);
    }

    // ---- IKE_AUTH

    /// The payloads of its IKE_AUTH message, with a Child SA of everything that the site's tunnel covers.
    pub fn auth_payloads(&self) -> Vec<Payload> {
        self.auth_payloads_with(CHILD_SPI)
    }

    /// The same with another SPI of the Child SA.
    pub fn auth_payloads_with(&self, spi: Spi) -> Vec<Payload> {
        let policy = self.site.policy(Side::Right);
        let (tunnel, child) = (&policy.tunnels[0], &policy.tunnels[0].children[0]);
        let id = Identification::of(&tunnel.local.identity);
        // RFC 7296 §2.15
        let algorithm = Prf::HmacSha2_256;
        let padded = prf(
            Provider::default(),
            algorithm,
            self.site.secret.as_bytes(),
            &[b"Key Pad for IKEv2"],
        );
        let data = prf(Provider::default(), algorithm, padded.expose(), &[&self.signed_octets()])
            .expose()
            .to_vec();
        let auth = Payload::Auth { method: AuthMethod::SHARED_KEY_MIC, data };
        let (ours, theirs) = (selectors::encode(&child.local), selectors::encode(&child.remote));
        let sa = Payload::Sa(offer_child(&child.proposals, Offered::default(), spi));
        match self.initiator {
            true => vec![
                Payload::IdInitiator(id),
                auth,
                sa,
                Payload::TsInitiator(ours),
                Payload::TsResponder(theirs),
            ],
            false => vec![
                Payload::IdResponder(id),
                auth,
                sa,
                Payload::TsInitiator(theirs),
                Payload::TsResponder(ours),
            ],
        }
    }

    /// The octets that its AUTH payload signs (RFC 7296 §2.15).
    pub fn signed_octets(&self) -> Vec<u8> {
        let id = Identification::of(&self.site.policy(Side::Right).tunnels[0].local.identity);
        let message = if self.initiator { &self.handshake.0 } else { &self.handshake.1 };
        let keys = self.keys.as_ref().expect("after IKE_SA_INIT");
        let body = [&[id.kind.0, 0, 0, 0], id.data.as_slice()].concat();
        let id_mac = prf(Provider::default(), Prf::HmacSha2_256, keys.our_proof.expose(), &[&body]);
        [message.as_slice(), &self.peer_nonce, id_mac.expose()].concat()
    }

    /// The payloads of CREATE_CHILD_SA for one more Child SA of everything that the site's tunnel covers.
    pub fn child_payloads(&self, spi: Spi) -> Vec<Payload> {
        self.payloads_of_child(0, spi)
    }

    /// The same for another one of the site's phase 2 tunnels.
    pub fn payloads_of_child(&self, index: usize, spi: Spi) -> Vec<Payload> {
        let policy = self.site.policy(Side::Right);
        let child = &policy.tunnels[0].children[index];
        vec![
            Payload::Sa(offer_child(&child.proposals, Offered::default(), spi)),
            Payload::Nonce(vec![0x77; 32]),
            Payload::TsInitiator(selectors::encode(&child.local)),
            Payload::TsResponder(selectors::encode(&child.remote)),
        ]
    }

    // ---- messages

    /// The header of a message of its own.
    pub fn header(&self, exchange: ExchangeType, message_id: u32, response: bool) -> Header {
        Header {
            initiator_spi: self.spis.0,
            responder_spi: self.spis.1,
            next_payload: PayloadType::NONE,
            exchange,
            from_initiator: self.initiator,
            response,
            higher_version: false,
            minor_version: 0,
            message_id,
        }
    }

    /// Protects a message.
    pub fn seal(&mut self, header: &Header, content: &Content) -> Vec<u8> {
        self.sealed += 1;
        let iv = self.sealed.to_be_bytes().to_vec();
        let keys = self.keys.as_ref().expect("after IKE_SA_INIT");
        let ours = keys.ours.as_ref();
        fragment::seal(header, content, Cut::to(60_000), SUITE, ours, || iv.clone()).remove(0)
    }

    /// Protects a message in this number of fragments (RFC 7383).
    pub fn seal_in_fragments(
        &mut self,
        header: &Header,
        content: &Content,
        count: usize,
    ) -> Vec<Vec<u8>> {
        let ours = self.keys.as_ref().expect("after IKE_SA_INIT").ours.as_ref();
        let sealed = &mut self.sealed;
        let iv = || {
            *sealed += 1;
            sealed.to_be_bytes().to_vec()
        };
        fragment::seal(header, content, Cut { room: 60_000, least: count }, SUITE, ours, iv)
    }

    /// Sends octets to the gateway and lets it think.
    pub fn send(&mut self, octets: Vec<u8>) {
        let port = self.port;
        let (source, destination) =
            (SocketAddr::new(self.site.right, port), SocketAddr::new(self.site.left, port));
        let content = Carried::Ike(octets);
        self.world.inject(Duration::ZERO, Parcel { source, destination, content });
        self.pass_time();
    }

    fn pass_time(&mut self) {
        self.world.run_for(Duration::from_millis(50));
    }

    /// Sends a protected request; the payloads of the gateway's answer.
    pub fn request(&mut self, exchange: ExchangeType, payloads: &[Payload]) -> Vec<Payload> {
        let header = self.header(exchange, self.next_request, false);
        let content = Content::of(&header, payloads);
        self.request_content(&header, &content)
    }

    /// Sends a request whose answer may take its time.
    pub fn ask(&mut self, exchange: ExchangeType, payloads: &[Payload]) {
        self.forget_sent();
        let header = self.header(exchange, self.next_request, false);
        self.next_request += 1;
        let request = self.seal(&header, &Content::of(&header, payloads));
        self.send(request);
    }

    /// The same as [`Puppet::request`] with the critical bit of the first payload set.
    pub fn request_critical(
        &mut self,
        exchange: ExchangeType,
        payloads: &[Payload],
    ) -> Vec<Payload> {
        let header = self.header(exchange, self.next_request, false);
        let mut content = Content::of(&header, payloads);
        content.octets[1] |= 0x80;
        self.request_content(&header, &content)
    }

    fn request_content(&mut self, header: &Header, content: &Content) -> Vec<Payload> {
        self.forget_sent();
        self.next_request += 1;
        let request = self.seal(header, content);
        self.send(request);
        let mut messages = self.messages();
        if !messages.iter().any(|(h, _)| h.response) {
            self.world.run_for(calm().drain_before_answer);
            messages.extend(self.messages());
        }
        let (answers, requests) = messages.into_iter().partition(|(h, _)| h.response);
        self.unanswered = requests;
        let (answer, octets) = only(answers);
        assert!(answer.message_id == header.message_id);
        self.open(&answer, &octets)
    }

    /// The next request of the gateway: one that came with its answer to the puppet's last request, or the one it has
    /// sent since.
    pub fn next_request(&mut self) -> (Header, Vec<Payload>) {
        let (header, octets) = match self.unanswered.is_empty() {
            true => self.one_message(),
            false => self.unanswered.remove(0),
        };
        assert!(!header.response, "{header:?} is no request");
        let payloads = self.open(&header, &octets);
        (header, payloads)
    }

    /// The Delete of the Child SA that the gateway has replaced just now. It waits until packets on that SA have
    /// arrived.
    pub fn next_delete(&mut self) -> (Header, Vec<Payload>) {
        let margin = Duration::from_millis(100);
        self.world.run_for(calm().drain - margin);
        let early = self.messages();
        assert!(early.is_empty() && self.unanswered.is_empty(), "{early:?}");
        self.world.run_for(margin);
        let (request, payloads) = self.next_request();
        assert!(
            matches!(payloads[..], [Payload::Delete(Delete::ChildSas { .. })]),
            "the old one goes: {payloads:?}"
        );
        (request, payloads)
    }

    /// Answers a request of the gateway.
    pub fn answer(&mut self, request: &Header, payloads: &[Payload]) {
        let header = self.header(request.exchange, request.message_id, true);
        let content = Content::of(&header, payloads);
        let answer = self.seal(&header, &content);
        self.send(answer);
    }

    /// Answers a request of the gateway, with the critical bit of the first payload set.
    pub fn answer_critical(&mut self, request: &Header, payloads: &[Payload]) {
        let header = self.header(request.exchange, request.message_id, true);
        let mut content = Content::of(&header, payloads);
        content.octets[1] |= 0x80;
        let answer = self.seal(&header, &content);
        self.send(answer);
    }

    /// Everything the gateway has sent since the last look.
    pub fn sent(&mut self) -> Vec<(Header, Vec<u8>)> {
        let left = self.site.left;
        let ours = self.world.take_tapped().into_iter().filter(|p| p.source.ip() == left);
        let octets = ours.filter_map(|p| match p.content {
            Carried::Ike(octets) => Some(octets),
            _ => None,
        });
        octets.map(|o| (Header::parse(&o).expect("a message of the gateway"), o)).collect()
    }

    /// Looks away.
    pub fn forget_sent(&mut self) {
        self.sent();
        self.unanswered.clear();
    }

    fn one_message(&mut self) -> (Header, Vec<u8>) {
        only(self.messages())
    }

    /// The messages of the gateway since the last look, but for those on IKE SAs that the puppet has begun before.
    fn messages(&mut self) -> Vec<(Header, Vec<u8>)> {
        let mut sent = self.sent();
        sent.retain(|(h, _)| !self.initiator || h.initiator_spi == self.spis.0);
        sent
    }

    /// Reads a protected message of the gateway.
    pub fn open(&self, header: &Header, octets: &[u8]) -> Vec<Payload> {
        let keys = self.keys.as_ref().expect("after IKE_SA_INIT");
        protected::open(header, octets, SUITE, keys.theirs.as_ref()).expect("it is protected")
    }

    // ---- looking

    /// IKE SAs of the gateway.
    pub fn ike_sas(&self) -> usize {
        self.world.host(self.left).engine.inventory().ike_sas
    }

    /// Child SAs of the gateway.
    pub fn child_sas(&self) -> usize {
        self.world.host(self.left).engine.inventory().child_sas
    }

    /// The puppet's SPIs of the SAs that the gateway may send on, in the order in which those were made.
    pub fn sending(&mut self) -> Vec<Spi> {
        let plane = self.world.plane(self.left);
        plane.outbound().filter(|o| o.turn().is_some()).map(|o| o.spi).collect()
    }

    /// Waits longer than anything takes.
    pub fn wait(&mut self) {
        self.world.run_for(SOON);
    }
}
