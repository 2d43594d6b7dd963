// Package orders is an example of an order service: it keeps orders in its
// own tables, and stores an event for each change in the outbox, in the same
// transaction.
//
// The pattern is in (*Service).carryOut: a guarded statement changes the order's row, and thereby
// locks it; behind it the event is appended. Nothing is published by the service
// itself: a relay does that (orderprojector run relay).
package orders
