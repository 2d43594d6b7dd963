//go:build unix

// Package testenv starts what integration tests run against: Apache Kafka,
// PostgreSQL, network faults between them, and the orderprojector program
// itself as a process.
//
// Kafka and PostgreSQL are shared by the tests of one binary, which get topics
// and databases of their own (Topic, Database). Tests that break a service
// start a private one (StartKafka, StartPostgres). Instead of starting the
// shared ones, services named by KAFKA_BOOTSTRAP_SERVERS and DATABASE_URL are
// used when those are set.
//
// Nothing here skips a test for want of a service: a test that cannot get one
// fails and says what to install. Only -short leaves these tests out. Each
// package that uses this one has
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
package testenv
