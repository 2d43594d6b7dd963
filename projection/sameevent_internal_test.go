package projection

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestCanonicalNumber(t *testing.T) {
	for _, equal := range [][]string{
		{"0", "-0", "0.0", "0e99999999999999999999999", "-0.000E-1"},
		{"1", "1.0", "10e-1", "0.1e1", "0.01E+2", "1e0", "1e-0", "1e0000000000000000000000000"},
		{"-1", "-1.0", "-0.1e1"},
		{"1e100000000000000000", "10e99999999999999999", "0.1e100000000000000001", "0.001e+00100000000000000003"},
		{"1e-100000000000000000", "10e-100000000000000001", "0.1e-99999999999999999"},
		{"1e" + strings.Repeat("9", 40), "0.1e1" + strings.Repeat("0", 40)},
		{"1e-" + strings.Repeat("9", 40), "10e-1" + strings.Repeat("0", 40)},
	} {
		for _, s := range equal {
			if canonicalNumber(s) != canonicalNumber(equal[0]) {
				t.Errorf("%s is %s, but %s is %s", s, canonicalNumber(s), equal[0], canonicalNumber(equal[0]))
			}
		}
	}
}

func TestAddDecimalIsExact(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		text := []string{"", "-", "+"}[rng.IntN(3)] + fmt.Sprint(rng.IntN(11)) + strings.Repeat([]string{"0", "9", "5"}[rng.IntN(3)], rng.IntN(25)) + fmt.Sprint(rng.IntN(11))
		n := rng.Int64N(2001) - 1000
		want, _ := new(big.Int).SetString(strings.TrimPrefix(text, "+"), 10)
		want.Add(want, big.NewInt(n))
		if got := addDecimal(text, n); got != want.String() {
			t.Fatalf("addDecimal(%q, %d) = %s, want %s", text, n, got, want)
		}
	}
}

// Two texts mean the same when they differ in order, white space, escapes and the writing of numbers alone.
func TestSameEventComparesMeanings(t *testing.T) {
	same := func(a, b string) bool { return SameEvent(&Envelope{Data: []byte(a)}, &Envelope{Data: []byte(b)}) }
	deep := strings.Repeat(`{"b":1,"a":`, 9000) + "[]" + strings.Repeat("}", 9000)
	turned := strings.Repeat(`{"a":`, 9000) + "[]" + strings.Repeat(`,"b":1.0}`, 9000)
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[true,null,"x"]}`, ` { "b" : [ true , null , "\u0078" ] , "\u0061" : 1.0e0 } `, true},
		{`{"a":{"c":1,"b":2}}`, `{"a":{"b":2,"c":1}}`, true},
		{deep, turned, true},
		{deep, strings.Replace(turned, "[]", "[0]", 1), false},
		{`{"a":1}`, `{"a":"1"}`, false},
		{`{"a":"n1e0"}`, `{"a":1}`, false},
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":[[1],2]}`, `{"a":[1,[2]]}`, false},
		{`{"a":[]}`, `{"a":{}}`, false},
		{`{"a":null}`, `{}`, false},
		{`{"a":"true"}`, `{"a":true}`, false},
		{`{"a":true}`, `{"a":false}`, false},
		{`{"a":"b"}`, `{"b":"a"}`, false},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{`{}`, ``, false},
		{`{"a":1`, `{"a":1.0`, false},
		{`{"a":1]`, `{"a":1.0]`, false},
		{`[1}`, `[1.0}`, false},
	} {
		if same(c.a, c.b) != c.same || same(c.b, c.a) != c.same {
			t.Errorf("%.100s and %.100s: same is %v, want %v", c.a, c.b, !c.same, c.same)
		}
	}
}
