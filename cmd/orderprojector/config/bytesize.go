package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ByteSize is a number of bytes, written as a plain number or with KiB, MiB
// or GiB.
type ByteSize int64

var byteUnits = []struct {
	suffix string
	size   int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func (b ByteSize) String() string {
	for _, u := range byteUnits {
		if n := int64(b); n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.suffix
		}
	}
	return "0B"
}

// MarshalText writes what Set reads.
func (b ByteSize) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// Set parses a size.
func (b *ByteSize) Set(text string) error {
	number, unit := strings.TrimSpace(text), int64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("%q is not a size (such as 512KiB, 64MiB or 1GiB)", text)
	}
	*b = ByteSize(n * unit)
	return nil
}

// Type is the flag's type in help.
func (b *ByteSize) Type() string { return "size" }
