package projection

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/orderprojector/orderprojector/domain/order"
)

// Data of any schema version that a type ever had is read. A reader of an older version hands what it
// read to the upcaster to the next one, and only the newest shape becomes the domain's event.
//
// A release that does not know a version holds its events: the first one becomes a dead letter of
// reason "unsupported", the order's later ones park behind it, and a redrive after the upgrade releases
// them. So producers may publish a new version before every consumer knows it, and a consumer may be rolled back.

// typeVersion names a schema: a type and the version of its data.
type typeVersion struct {
	name   order.Type
	schema int
}

// laterDecoders reads data of schema versions above 1.
var laterDecoders = map[typeVersion]func(jsontext.Value) (order.Event, error){
	{order.TypeCreated, 2}: decodeCreatedV2,
}

// createdV1 is OrderCreated.v1: the total alone.
type createdV1 struct {
	customerID string
	total      order.Money
}

// createdV2 is OrderCreated.v2, the newest shape: what the total is made of.
type createdV2 struct {
	customerID string
	lines      []orderLine // at least one, all in one currency
}

type orderLine struct {
	sku       string // empty in an upcast event: version 1 does not say
	quantity  int64  // from 1
	unitPrice order.Money
}

// upcast makes the whole total one line.
func (c createdV1) upcast() createdV2 {
	return createdV2{customerID: c.customerID, lines: []orderLine{{quantity: 1, unitPrice: c.total}}}
}

// event adds up the lines, exactly.
func (c createdV2) event() (order.Event, error) {
	total := order.Money{Currency: c.lines[0].unitPrice.Currency}
	for i, line := range c.lines {
		if line.unitPrice.Currency != total.Currency {
			return nil, fmt.Errorf("lines[%d].unit_price is in %s, and lines[0].unit_price in %s: an order has one currency",
				i, line.unitPrice.Currency, total.Currency)
		}
		high, amount := bits.Mul64(uint64(line.quantity), uint64(line.unitPrice.Minor))
		if high != 0 || amount > uint64(math.MaxInt64-total.Minor) {
			return nil, fmt.Errorf("lines[%d]: with %d × %s, the total's minor units do not fit into 64 bits", i, line.quantity, line.unitPrice)
		}
		total.Minor += int64(amount)
	}
	return order.Created{CustomerID: c.customerID, Total: total}, nil
}

func decodeCreatedV1(data jsontext.Value) (order.Event, error) {
	var d struct {
		CustomerID string     `json:"customer_id"`
		Total      *jsonMoney `json:"total"`
	}
	if err := unmarshalData(data, &d); err != nil {
		return nil, err
	}
	total, err := d.Total.money("total")
	if err != nil {
		return nil, err
	}
	if err := checkID("customer_id", d.CustomerID); err != nil {
		return nil, err
	}
	return createdV1{d.CustomerID, total}.upcast().event()
}

func decodeCreatedV2(data jsontext.Value) (order.Event, error) {
	var d struct {
		CustomerID string `json:"customer_id"`
		Lines      []struct {
			SKU       string         `json:"sku"`
			Quantity  jsontext.Value `json:"quantity"`
			UnitPrice *jsonMoney     `json:"unit_price"`
		} `json:"lines"`
	}
	if err := unmarshalData(data, &d); err != nil {
		return nil, err
	}
	if err := checkID("customer_id", d.CustomerID); err != nil {
		return nil, err
	}
	if len(d.Lines) == 0 {
		return nil, errors.New("lines is missing or empty")
	}
	created := createdV2{customerID: d.CustomerID, lines: make([]orderLine, 0, len(d.Lines))}
	for i, l := range d.Lines {
		at := fmt.Sprintf("lines[%d].", i)
		if err := checkID(at+"sku", l.SKU); err != nil {
			return nil, err
		}
		quantity, err := parsePositive(at+"quantity", l.Quantity)
		if err != nil {
			return nil, err
		}
		price, err := l.UnitPrice.money(at + "unit_price")
		if err != nil {
			return nil, err
		}
		created.lines = append(created.lines, orderLine{l.SKU, quantity, price})
	}
	return created.event()
}
