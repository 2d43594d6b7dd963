// Package relay publishes the messages of an outbox.
//
// # Order, and what is published twice
//
// Per order, messages are published in the order of their versions, and each
// waits for the acknowledgement of the one before: sent together, a later one could land
// although an earlier one failed. A message is deleted after its acknowledgement, so whoever
// publishes a version knows that all earlier ones are in the topic. That holds also for
// a relay that was frozen and wakes up beside its successor: what it still sends are repeats.
// So the first occurrences of an order's versions are in order whatever happens, and
// repeats (a crash between acknowledgement and deletion, a frozen relay) have the same event ID and the same bytes.
//
// # What is found, and how
//
// Messages are found by existence. A forward scan follows the sequence number, because that is
// cheap; it may miss what commits late, since numbers are taken before the commit. So
// a sweep looks at everything below, again and again. Both only name orders; an order's messages are
// then loaded by its ID, first version first, whatever their numbers are. Neither transaction IDs nor stored positions are
// involved: idle transactions hold nothing up, and a restored database needs nothing reset.
//
// # One relay
//
// A relay works while it holds its Queue, whose implementation gives it to one relay per database. It
// stops publishing when it has not heard of its queue for the lease, which is shorter than it
// takes until another gets the queue of a relay that fell silent.
package relay
