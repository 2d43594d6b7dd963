package reference

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// money is an exact amount in minor units of its currency.
type money struct {
	minor    int64
	currency string
}

// minorDigits holds ISO 4217's number of decimal places of every active
// currency that has one.
var minorDigits = func() map[string]int {
	table := map[string]int{}
	for places, codes := range map[int]string{
		0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
		2: `AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW
			CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF
			IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK
			MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP
			SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER
			ZAR ZMW ZWG`,
		3: "BHD IQD JOD KWD LYD OMR TND",
		4: "CLF UYW",
	} {
		for _, code := range strings.Fields(codes) {
			table[code] = places
		}
	}
	return table
}()

// readLines adds up the lines of an order: quantity × unit price, all in one currency.
func readLines(value any) (money, error) {
	lines, ok := value.([]any)
	if !ok || len(lines) == 0 {
		return money{}, errors.New("lines is missing, empty or no array")
	}
	total, currency := new(big.Int), ""
	for i, value := range lines {
		line, _ := value.(object)
		sku, ok := line["sku"].(string)
		if !ok || !isIdentifier(sku) {
			return money{}, fmt.Errorf("lines[%d].sku is missing or invalid", i)
		}
		quantity, ok := readVersion(line["quantity"])
		if !ok {
			return money{}, fmt.Errorf("lines[%d].quantity is missing or invalid", i)
		}
		price, err := readMoney(line["unit_price"])
		if err != nil {
			return money{}, fmt.Errorf("lines[%d].unit_price: %w", i, err)
		}
		if i > 0 && price.currency != currency {
			return money{}, errors.New("lines in several currencies")
		}
		currency = price.currency
		total.Add(total, new(big.Int).Mul(big.NewInt(quantity), big.NewInt(price.minor)))
	}
	if !total.IsInt64() {
		return money{}, errors.New("the total does not fit into 64 bits")
	}
	return money{minor: total.Int64(), currency: currency}, nil
}

// readMoney reads {"amount": …, "currency": …}.
func readMoney(value any) (money, error) {
	members, ok := value.(object)
	if !ok {
		return money{}, errors.New("money is not an object")
	}
	currency, ok := members["currency"].(string)
	if !ok {
		return money{}, errors.New("money has no currency")
	}
	places, ok := minorDigits[currency]
	if !ok {
		return money{}, fmt.Errorf("unknown currency %q", currency)
	}
	var text string
	switch amount := members["amount"].(type) {
	case json.Number:
		text = amount.String()
	case string:
		text = amount
	default:
		return money{}, errors.New("money has no amount")
	}
	number, ok := parseDecimal(text)
	if !ok {
		return money{}, errors.New("amount is not a decimal number")
	}
	minor, ok := number.scaled(places)
	if !ok || minor < 0 {
		return money{}, errors.New("amount is not a whole, non-negative number of minor units")
	}
	return money{minor: minor, currency: currency}, nil
}
