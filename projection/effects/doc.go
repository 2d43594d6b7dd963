// Package effects is the frame of a consumer beside the projection: a consumer group of its own that makes
// something of single events, such as points or notifications, exactly once per event ID.
//
// The words it uses, beside those of package projection:
//
//   - Effect: what a consumer does about events, in the transaction that notes them as consumed.
//   - Consumed: an event ID that a consumer has dealt with, and the digest of its record.
//   - Verdict: what an effect says of one event.
//   - Held: a record whose effect failed for a reason of its own; it is tried again while the others go on.
//   - Policy: whether an event that is read again on purpose may still have its effect.
//
// Events reach an effect in the order of their partition, but nothing waits for a missing
// version, and a held one is overtaken: an effect must come out the same in any order of arrival.
//
// A batch is one transaction: it locks the watermark, finds out which events are consumed already, has the others
// decided by the effect, and writes effects, consumed event IDs, dead letters, held records and the
// watermark together. So nothing is done twice, and nothing is lost, whenever the process dies.
package effects
