//! How are the keys of maps hashed that every placement and every report looks into?

/// A keyed hash, several times as quick as the standard library's for names of some dozen bytes. The key is drawn anew in
/// each process, so that nobody can prepare names that collide; but it promises less than SipHash, so it is for names
/// that only known gateways, hosts and administrators can bring.
pub type KeyHasher = foldhash::fast::RandomState;
