// Package projection turns the records of an order topic into rows.
//
// The words it uses, each with one meaning:
//
//   - Record: one Kafka record, as bytes and coordinates.
//   - Envelope: a decoded record: one event of one order, with its version.
//   - Outcome: the decision on one record, out of a closed set.
//   - Row: an order's current state together with the ledger of the events
//     that led to it.
//   - Version: the order's own count of events; the next event has the row's version
//     plus one. Revision: raised by every write to a row that is not an append.
//   - Watermark: the next offset of a partition; everything below it is
//     durable in this database.
//   - Parked: an event ahead of a gap. Blocked: an order whose next version is
//     a dead letter.
//
// Decide is the pure half; Projector applies its decisions to a Store in
// batches, one transaction each. Imports point inwards: this package knows
// neither PostgreSQL nor Kafka's client.
package projection
