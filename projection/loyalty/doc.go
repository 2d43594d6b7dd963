// Package loyalty is the consumer that keeps customers' points. A ledger entry is one payment or refund, by its
// business key, so that the same payment under two event IDs earns once; what an entry changes follows from all payments
// and refunds of the order, so that it does not matter in which order they come.
//
// It trusts what the order service published, whatever the projection makes of it; comparing the two is
// a command's work.
package loyalty
