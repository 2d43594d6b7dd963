// Package bench measures the program on a real broker and database. Machines
// differ and are noisy, so what counts are ratios of things measured in one
// run: `make bench` prints them, docs/performance.md keeps them.
package bench
