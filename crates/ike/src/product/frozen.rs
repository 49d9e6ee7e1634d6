//! The peers' daemons in a frozen engine: when this side begins to send on a Child SA depends on them.

use super::{Product, ProductKind, Products};
use crate::frozen::values::meaning;
use ::frozen::{Field, Reader, Unthawable, Writer};

const PRODUCTS: Field = Field::new(1);

const TUNNEL: Field = Field::new(1);
const PRODUCT: Field = Field::new(2);

const KIND: Field = Field::new(1);
const VERSION: Field = Field::new(2);

impl Products {
    pub fn freeze(&self, to: &mut Writer<'_>) {
        to.list(PRODUCTS, &self.0, |to, (tunnel, product)| {
            to.text(TUNNEL, tunnel);
            to.record(PRODUCT, |to| product.freeze(to));
        });
    }

    pub fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let products = from.list(PRODUCTS, "a peer's product")?.map(|mut from| {
            let tunnel = from.text(TUNNEL)?.to_owned();
            let product = Product::thaw(from.record(PRODUCT, "a product")?)?;
            from.end()?;
            Ok((tunnel, product))
        });
        let products = products.collect::<Result<_, Unthawable>>()?;
        from.end()?;
        Ok(Self(products))
    }
}

impl Product {
    pub(crate) fn freeze(&self, to: &mut Writer<'_>) {
        let Self { kind, version } = self;
        to.number(KIND, kind.number());
        to.octets_if_any(VERSION, version.as_ref().map(String::as_bytes));
    }

    pub(crate) fn thaw(mut from: Reader<'_>) -> Result<Self, Unthawable> {
        let kind = meaning(&mut from, KIND, ProductKind::of_number)?;
        let version = match from.octets_if_any(VERSION)? {
            None => None,
            Some(octets) => Some(std::str::from_utf8(octets).map_err(|_| from.invalid(VERSION))?),
        };
        from.end()?;
        Ok(Self { kind, version: version.map(str::to_owned) })
    }
}

impl ProductKind {
    fn number(self) -> u8 {
        match self {
            Self::Vpnd => 1,
            Self::Libreswan => 2,
            Self::Strongswan => 3,
            Self::OpenIked => 4,
        }
    }

    fn of_number(number: u64) -> Option<Self> {
        [Self::Vpnd, Self::Libreswan, Self::Strongswan, Self::OpenIked]
            .into_iter()
            .find(|kind| u64::from(kind.number()) == number)
    }
}
