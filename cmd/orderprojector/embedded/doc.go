// Package embedded starts the two services that orderprojector works on, for
// a demonstration or a test: a throwaway PostgreSQL server as a child process,
// and a Kafka cluster inside this process. Neither is for production.
package embedded
