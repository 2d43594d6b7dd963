// Package kafkaio connects projections to Kafka.
//
// Consumer drives a projection.Handler as a member of a consumer group.
// RecordReader reads single records again, TopicReader reads a whole topic
// without a group, and Producer writes records. All of them are configured by
// one ClientConfig.
//
// # How the consumer works
//
// A session uses two Kafka clients. The member joins the group, heartbeats and
// commits, and fetches nothing. The fetcher reads exactly the partitions and
// offsets that it is told to, and knows of no group. So a database that is
// down stops fetching without touching the membership, no record is ever
// fetched from an offset that the handler did not choose, and slow callbacks
// do not wait for a poll loop.
//
// Each owned partition has one goroutine. It asks the broker where the log
// begins and ends, asks the handler where to start, then hands records over in
// batches. The committer alone commits, and only for partitions that are owned
// at that moment: the revoke callback takes the same lock.
//
// Whatever a client cannot recover from by itself (a topic that was created
// anew, a client that closed) ends the session, and the consumer starts the
// next one with fresh clients.
package kafkaio
