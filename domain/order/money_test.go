package order_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/orderprojector/orderprojector/domain/order"
)

func TestParseMoney(t *testing.T) {
	const (
		currency = "the currency is not an active ISO 4217 code with a minor unit"
		grammar  = `the amount is not a decimal number such as "19.99"`
		negative = "it is negative"
		fraction = "it is not a whole number of the currency's minor units"
		tooLarge = "its minor units do not fit into 64 bits"
	)
	zeros := strings.Repeat("0", 100_000)

	for _, test := range []struct {
		amount, currency string
		minor            int64
		refused          string
	}{
		{"19.99", "EUR", 1999, ""},
		{"0.1", "EUR", 10, ""},
		{"0.2", "EUR", 20, ""},
		{"0.01", "EUR", 1, ""},
		{"0", "EUR", 0, ""},
		{"7", "EUR", 700, ""},
		{"12345678901.00", "EUR", 1234567890100, ""},
		{"19.990", "EUR", 1999, ""},
		{"19.99" + zeros, "EUR", 1999, ""},
		{"19.995", "EUR", 0, fraction},
		{"0.001", "EUR", 0, fraction},
		{"19.99" + zeros + "1", "EUR", 0, fraction},

		{"1.999e1", "EUR", 1999, ""},
		{"1.999E+1", "EUR", 1999, ""},
		{"1999e-2", "EUR", 1999, ""},
		{"199900e-04", "EUR", 1999, ""},
		{"1999e-3", "EUR", 0, fraction},
		{"1e0", "EUR", 100, ""},
		{"1e16", "EUR", 1_000_000_000_000_000_000, ""},
		{"1e17", "EUR", 0, tooLarge},
		{"1e999999999", "EUR", 0, tooLarge},
		{"1e-999999999", "EUR", 0, fraction},
		{"1e9" + zeros, "EUR", 0, tooLarge},
		{"1e-9" + zeros, "EUR", 0, fraction},
		{"0e9" + zeros, "EUR", 0, ""},
		{"0.00e-9" + zeros, "EUR", 0, ""},
		{"0." + zeros + "1e100001", "EUR", 100, ""},
		{"1" + zeros + "e-100000", "EUR", 100, ""},
		{"1" + zeros, "EUR", 0, tooLarge},

		{"92233720368547758.07", "EUR", math.MaxInt64, ""},
		{"92233720368547758.08", "EUR", 0, tooLarge},
		{"99999999999999999.99", "EUR", 0, tooLarge},
		{"184467440737095516.17", "EUR", 0, tooLarge}, // 2^64 + 1 cents
		{"9223372036854775807", "JPY", math.MaxInt64, ""},
		{"9223372036854775808", "JPY", 0, tooLarge},
		{"9007199254740993", "JPY", 9007199254740993, ""},

		{"-0", "EUR", 0, ""},
		{"-0.00", "EUR", 0, ""},
		{"-0e7", "EUR", 0, ""},
		{"-0.01", "EUR", 0, negative},
		{"-1", "EUR", 0, negative},
		{"-0.001", "EUR", 0, negative},

		{"100", "JPY", 100, ""},
		{"100.0", "JPY", 100, ""},
		{"100.5", "JPY", 0, fraction},
		{"1.005e2", "JPY", 0, fraction},
		{"1.234", "KWD", 1234, ""},
		{"1.2345", "KWD", 0, fraction},
		{"1.2345", "CLF", 12345, ""},
		{"1.23456", "UYW", 0, fraction},

		{"", "EUR", 0, grammar},
		{"-", "EUR", 0, grammar},
		{"NaN", "EUR", 0, grammar},
		{"Infinity", "EUR", 0, grammar},
		{"-inf", "EUR", 0, grammar},
		{"1,00", "EUR", 0, grammar},
		{"1_000", "EUR", 0, grammar},
		{"1 000", "EUR", 0, grammar},
		{" 1", "EUR", 0, grammar},
		{"1 ", "EUR", 0, grammar},
		{"1\n", "EUR", 0, grammar},
		{"1\x00", "EUR", 0, grammar},
		{"+1", "EUR", 0, grammar},
		{"--1", "EUR", 0, grammar},
		{".5", "EUR", 0, grammar},
		{"1.", "EUR", 0, grammar},
		{"1.e1", "EUR", 0, grammar},
		{"1.2.3", "EUR", 0, grammar},
		{"01.5", "EUR", 0, grammar},
		{"00", "EUR", 0, grammar},
		{"-01", "EUR", 0, grammar},
		{"1e", "EUR", 0, grammar},
		{"1e+", "EUR", 0, grammar},
		{"1e+-1", "EUR", 0, grammar},
		{"1e1.0", "EUR", 0, grammar},
		{"e1", "EUR", 0, grammar},
		{"0x10", "EUR", 0, grammar},
		{"1/3", "EUR", 0, grammar},
		{"١", "EUR", 0, grammar},
		{"€1", "EUR", 0, grammar},

		{"1", "", 0, currency},
		{"1", "eur", 0, currency},
		{"1", "EUR ", 0, currency},
		{"1", "ABC", 0, currency},
		{"1", "XAU", 0, currency},
		{"1", "XXX", 0, currency},
		{"1", "978", 0, currency},
	} {
		name := test.amount[:min(len(test.amount), 12)] + " " + test.currency
		got, err := order.ParseMoney(test.amount, test.currency)
		if test.refused == "" {
			if want := (order.Money{Minor: test.minor, Currency: test.currency}); err != nil || got != want {
				t.Errorf("%q: got %+v and error %v, want %+v", name, got, err, want)
			}
			continue
		}
		var refused *order.MoneyError
		if !errors.As(err, &refused) || refused.Reason != test.refused || got != (order.Money{}) {
			t.Errorf("%q: got %+v and error %v, want refused: %s", name, got, err, test.refused)
		}
	}
}

func TestMoneyErrorIsShort(t *testing.T) {
	_, err := order.ParseMoney(strings.Repeat("9", 39)+strings.Repeat("€", 1000), "EUR")
	want := `amount "` + strings.Repeat("9", 39) + `… (3039 bytes)" in currency "EUR": the amount is not a decimal number such as "19.99"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestMoneyString(t *testing.T) {
	for want, m := range map[string]order.Money{
		"19.99 EUR":                {Minor: 1999, Currency: "EUR"},
		"0.00 EUR":                 {Minor: 0, Currency: "EUR"},
		"0.05 EUR":                 {Minor: 5, Currency: "EUR"},
		"0.50 EUR":                 {Minor: 50, Currency: "EUR"},
		"100 JPY":                  {Minor: 100, Currency: "JPY"},
		"0.001 KWD":                {Minor: 1, Currency: "KWD"},
		"92233720368547758.07 EUR": {Minor: math.MaxInt64, Currency: "EUR"},
		// no amounts, but an error has to name them
		"-0.05 EUR":                 {Minor: -5, Currency: "EUR"},
		"-92233720368547758.08 EUR": {Minor: math.MinInt64, Currency: "EUR"},
		"5 ABC":                     {Minor: 5, Currency: "ABC"},
	} {
		if got := m.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// decimals repeats a few facts of ISO 4217, so that the properties do not lean
// on the code they check.
var decimals = map[string]int64{"EUR": 2, "USD": 2, "JPY": 0, "KWD": 3, "CLF": 4}

func anyCurrency() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"EUR", "USD", "JPY", "KWD", "CLF"})
}

func TestMoneySurvivesItsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := order.Money{
			Minor:    rapid.Int64Range(0, math.MaxInt64).Draw(t, "minor"),
			Currency: anyCurrency().Draw(t, "currency"),
		}
		got, err := order.ParseMoney(want.Amount(), want.Currency)
		if err != nil || got != want {
			t.Fatalf("got %+v and error %v, want %+v", got, err, want)
		}
	})
}

func TestParseMoneyAgreesWithRationals(t *testing.T) {
	// numbers near the limits of what fits, most of them valid
	amounts := rapid.OneOf(
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,4})?([eE][+-]?0?[0-9])?`),
		rapid.StringMatching(`9223372036854775[0-9]{1,3}(\.[0-9]{1,3}0{0,3})?(e-?[0-3])?`),
		rapid.StringMatching(`0\.0{0,20}[1-9]{1,3}e[12]?[0-9]`),
	)
	rapid.Check(t, func(t *rapid.T) {
		checkAgainstRational(t, amounts.Draw(t, "amount"), anyCurrency().Draw(t, "currency"))
	})
}

func FuzzParseMoney(f *testing.F) {
	for _, amount := range []string{
		"19.99", "19.995", "1.999e1", "-0.00", "-0.01", "1e999999999", "0e-999999999", "12345678901.00", "NaN", "",
		"1,00", "+1", ".5", "01.5", "1.", "1e", "1e+1", "92233720368547758.07", "92233720368547758.08", " 1", "1\x00",
	} {
		for currency := range decimals {
			f.Add(amount, currency)
		}
	}
	f.Fuzz(func(t *testing.T, amount, currency string) {
		m, err := order.ParseMoney(amount, currency)
		if err != nil {
			if !errors.As(err, new(*order.MoneyError)) || len(err.Error()) > 1000 {
				t.Fatalf("unexpected error: %v", err)
			}
		} else if again, err := order.ParseMoney(m.Amount(), currency); err != nil || again != m {
			t.Fatalf("%q became %s, which became %s: %v", amount, m, again, err)
		}
		if _, known := decimals[currency]; known {
			checkAgainstRational(t, amount, currency)
		}
	})
}

// checkAgainstRational compares ParseMoney with encoding/json's idea of a
// number and math/big's idea of its value.
func checkAgainstRational(t interface{ Fatalf(string, ...any) }, amount, currency string) {
	m, err := order.ParseMoney(amount, currency)
	if !isJSONNumber(amount) {
		if err == nil {
			t.Fatalf("%q is no number, but was read as %s", amount, m)
		}
		return
	}
	if _, exponent, _ := strings.Cut(strings.ToLower(amount), "e"); len(exponent) > 4 {
		return // a rational of that size takes too long
	}
	value, ok := new(big.Rat).SetString(amount)
	if !ok {
		t.Fatalf("math/big cannot read %q", amount)
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(decimals[currency]), nil)
	value.Mul(value, new(big.Rat).SetInt(unit))
	if exact := value.IsInt() && value.Sign() >= 0 && value.Num().IsInt64(); exact != (err == nil) {
		t.Fatalf("%q is %s minor units of %s, but: %v", amount, value, currency, err)
	} else if exact && (m.Minor != value.Num().Int64() || m.Currency != currency) {
		t.Fatalf("%q is %s minor units of %s, not %+v", amount, value, currency, m)
	}
}

func isJSONNumber(text string) bool {
	if text == "" || !strings.ContainsRune("-0123456789", rune(text[0])) || strings.TrimSpace(text) != text {
		return false
	}
	return json.Valid([]byte(text))
}

func TestParseMoneyAllocatesNothing(t *testing.T) {
	for _, amount := range []string{"123.45", "1.2345e2", "12345678901.00"} {
		if n := testing.AllocsPerRun(100, func() { _, _ = order.ParseMoney(amount, "EUR") }); n != 0 {
			t.Errorf("%s: %v allocations", amount, n)
		}
	}
}

func BenchmarkParseMoney(b *testing.B) {
	for _, amount := range []string{"123.45", "1.2345e2", "92233720368547758.07", "1e999999999"} {
		b.Run(amount, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = order.ParseMoney(amount, "EUR")
			}
		})
	}
}
