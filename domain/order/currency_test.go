package order

import "testing"

// A code more or less is a decision: it makes events readable, or no longer.
func TestCurrencies(t *testing.T) {
	count := make(map[int]int)
	var code [3]byte
	for code[0] = 'A'; code[0] <= 'Z'; code[0]++ {
		for code[1] = 'A'; code[1] <= 'Z'; code[1]++ {
			for code[2] = 'A'; code[2] <= 'Z'; code[2]++ {
				if digits, known := minorDigits(string(code[:])); known {
					count[digits]++
				}
			}
		}
	}
	for digits, want := range map[int]int{0: 17, 2: 139, 3: 7, 4: 2} {
		if count[digits] != want {
			t.Errorf("%d currencies with %d decimals, want %d", count[digits], digits, want)
		}
	}
	for code, want := range map[string]int{
		"EUR": 2, "USD": 2, "GBP": 2, "CHF": 2, "MGA": 2, "HUF": 2, "JPY": 0, "KRW": 0, "CLP": 0, "VND": 0, "ISK": 0,
		"XAF": 0, "UYI": 0, "BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3, "CLF": 4, "UYW": 4,
	} {
		if digits, known := minorDigits(code); !known || digits != want {
			t.Errorf("%s: got %d decimals (%v), want %d", code, digits, known, want)
		}
	}
	for _, code := range []string{"", "XAU", "XAG", "XDR", "XTS", "XXX", "eur", "EURO", "EU"} {
		if _, known := minorDigits(code); known {
			t.Errorf("%q is known", code)
		}
	}
}
