package reference

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

// The sum is that of big integers, also where it carries through the long run of nines or zeros.
func TestShiftOfLongIntegers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		text := strings.Repeat("0", rng.IntN(2)) + fmt.Sprint(rng.IntN(11)) + strings.Repeat([]string{"0", "9", "5"}[rng.IntN(3)], rng.IntN(25)) + fmt.Sprint(rng.IntN(11))
		text = []string{"", "-", "+"}[rng.IntN(3)] + text
		n := rng.Int64N(2001) - 1000
		want, _ := new(big.Int).SetString(strings.TrimPrefix(text, "+"), 10)
		want.Add(want, big.NewInt(n))
		if got := shift(text, n); got != want.String() {
			t.Fatalf("shift(%q, %d) = %s, want %s", text, n, got, want)
		}
	}
}
