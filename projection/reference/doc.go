// Package reference folds a topic of order events on its own: the oracle that
// tests, the demo and verification compare the projection with.
//
// It is written from the event contract and the rules for deciding, and shares
// no code with the program it judges: it has its own JSON reading, its own
// money, a plain switch for the state machine. Only the contract types of
// package projection (Record, Outcome, Counts) are common. Clarity comes
// before speed, yet a million events are folded in a few seconds; memory grows
// with the orders and their ledgers (digests, never payloads).
package reference
