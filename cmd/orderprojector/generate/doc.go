// Package generate makes synthetic order traffic: whole life cycles of many
// interleaved orders, clean or with every fault that a consumer of order
// events meets. The stream is a pure function of its Config, needs memory for the
// orders in flight only, and says of every record what it was meant to be.
package generate
