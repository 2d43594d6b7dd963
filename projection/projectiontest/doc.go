// Package projectiontest helps to test what uses package projection: an
// in-memory store for simulations, and the conformance suite that it and the
// real store pass. Nothing outside of tests imports it.
package projectiontest
