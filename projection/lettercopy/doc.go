// Package lettercopy copies dead letters to a topic, for Kafka's tools.
//
// The letters themselves are in the database, written together with everything
// else, so a copy that is late costs nothing: a topic that is missing, too small or
// forbidden, or a broker that is down, delays copies and never the consumer.
//
// Copies are written at least once. What is due is found by existence: a
// letter whose newest attempt (its lap) has no copy yet.
package lettercopy
