package generate

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orderprojector/orderprojector/projection"
)

// plan is the traffic of one order: its life cycle with faults among it.
type plan struct {
	lifecycle
	key     []byte
	records []planned
	next    int // index of the next record to send
}

type planned struct {
	Record
	place float64 // records are sent by place
	delay int     // when positive, by how many records of the whole stream it comes later
}

// planner turns life cycles into plans.
type planner struct {
	config Config
	shapes *rand.PCG // of the life cycle, seeded per order
	faults *rand.PCG // of the faults, seeded per order
	shape  *rand.Rand
	fault  *rand.Rand
	bytes  slab
}

func newPlanner(config Config) *planner {
	p := &planner{config: config, shapes: rand.NewPCG(0, 0), faults: rand.NewPCG(0, 0)}
	p.shape, p.fault = rand.New(p.shapes), rand.New(p.faults)
	return p
}

// write fills pl with the traffic of the n-th order.
func (p *planner) write(pl *plan, n int, orderID string) {
	p.shapes.Seed(p.config.Seed, uint64(2*n))
	p.faults.Seed(p.config.Seed, uint64(2*n+1))
	amendments := 0
	if long := p.config.Long; long > 0 && n%long == long-1 {
		amendments = p.config.Amendments
	}
	start := p.config.Start.Add(time.Duration(n)*50*time.Millisecond +
		time.Duration(p.shape.Int64N(int64(time.Minute/time.Microsecond)))*time.Microsecond)
	pl.live(p.shape, orderID, start, amendments)
	pl.key = []byte(orderID)
	pl.records, pl.next = pl.records[:0], 0
	pl.events[0].lines = p.happens(p.config.Lines)
	for i := range pl.events {
		p.event(pl, i)
	}
	if p.happens(p.config.Illegal) { // the end of a life can be followed by something illegal, too
		e, detail := p.illegal(pl, len(pl.events))
		pl.send(Illegal, detail, e.version, p.encode(&e, style{}))
	}
	slices.SortStableFunc(pl.records, func(a, b planned) int { return cmp.Compare(a.place, b.place) })
}

func (p *planner) happens(rate float64) bool { return rate > 0 && p.fault.Float64() < rate }

// event plans the i-th event with the faults that surround it.
func (p *planner) event(pl *plan, i int) {
	rates, rng, e := &p.config.Rates, p.fault, &pl.events[i]
	replaced := false // the event itself never comes

	if p.happens(rates.Illegal) {
		illegal, detail := p.illegal(pl, i)
		replaced = rng.IntN(2) == 0
		if rng.IntN(2) == 0 {
			illegal.id = e.id // the right event will correct it under the same ID
		}
		pl.send(Illegal, detail, e.version, p.encode(&illegal, style{}))
	}
	if p.happens(rates.Unsupported) {
		unknown := *e
		unknown.typeText = unknownTypes[rng.IntN(len(unknownTypes))]
		if unknown.typeText == ".v2" && e.kind == created {
			unknown.typeText = ".v3" // the second one is known
		}
		if unknown.typeText[0] == '.' {
			unknown.typeText = kindNames[e.kind] + unknown.typeText
		}
		replaced = replaced || rng.IntN(2) == 0
		pl.send(Unsupported, unknown.typeText, e.version, p.encode(&unknown, style{}))
	}
	if p.happens(rates.Poison) {
		poison := p.poison(pl, e)
		if p.happens(rates.CloudEvents) {
			poison = p.poisonCloudEvent(pl, e)
		}
		replaced = replaced || poison.claims && rng.IntN(4) == 0
		r := pl.send(Poison, poison.name, 0, encoded{poison.value, poison.headers})
		r.Key = poison.key
		if poison.key != nil {
			r.PartitionKey = poison.key
		}
	}
	if i > 0 && p.happens(rates.Conflict/3) {
		reused := pl.event(rng, e.kind, e.version, e.at, e.minor)
		reused.id = pl.events[rng.IntN(i)].id
		pl.send(Conflict, "event ID used at another version", e.version, p.encode(&reused, style{}))
	}
	if replaced {
		return
	}

	as := p.encode(e, style{})
	gap := p.happens(rates.Gap)
	if gap && rng.IntN(3) == 0 {
		return
	}
	r := pl.send(None, "", e.version, as)
	switch {
	case gap:
		r.Label.Fault, r.delay = LateVersion, p.delay()
	case p.happens(rates.Disorder):
		r.Label.Fault = Disorder
		r.place += float64(1+rng.IntN(p.config.Window)) + 0.5
	case p.happens(rates.NullKey):
		r.Label.Fault, r.Key = NullKey, nil
	}

	if p.happens(rates.Duplicate) {
		pl.send(Duplicate, "", e.version, as).place += float64(rng.IntN(4)) + 0.5
	}
	if p.happens(rates.Reencoded) {
		again := style{
			rotate: rng.IntN(6), spaces: rng.IntN(2) == 0, numbers: rng.IntN(2) == 0, zone: 15 * (rng.IntN(97) - 48),
			bare: rng.IntN(2) == 0, escapes: rng.IntN(4) == 0,
		}
		again.rotate = max(again.rotate, 1) // never the same bytes
		pl.send(Reencoded, "", e.version, p.encode(e, again)).place += float64(rng.IntN(4)) + 0.5
	}
	if p.happens(rates.LateRepeat) {
		pl.send(LateRepeat, "", e.version, as).delay = p.delay()
	}
	if p.happens(rates.Conflict * 2 / 3) {
		other := *e
		other.at = e.at.Add(time.Microsecond)
		detail := "same event ID and version, other content"
		if rng.IntN(2) == 0 {
			other.id = newEventID(rng, e.at)
			detail = "same version, other event ID"
		}
		pl.send(Conflict, detail, e.version, p.encode(&other, style{}))
	}
	if p.happens(rates.Tombstone) {
		pl.send(Tombstone, "", 0, encoded{})
	}
	if p.happens(rates.HugeVersion) {
		far := pl.event(rng, packed, 1<<53+1, e.at, 0)
		pl.send(HugeVersion, "", far.version, p.encode(&far, style{}))
	}
}

// send appends a record in the order's own name; the pointer is good until the next one.
func (pl *plan) send(fault Fault, detail string, version int64, as encoded) *planned {
	pl.records = append(pl.records, planned{
		Record: Record{
			Key: pl.key, PartitionKey: pl.key, Value: as.value, Headers: as.headers,
			Label: Label{Fault: fault, Detail: detail, OrderID: pl.orderID, Version: version},
		},
		place: float64(len(pl.records)),
	})
	return &pl.records[len(pl.records)-1]
}

func (p *planner) delay() int { return p.config.Delay * (1 + p.fault.IntN(9)) }

// encoded is an event as a record has it.
type encoded struct {
	value   []byte
	headers []projection.Header // of a CloudEvent
}

func (p *planner) encode(e *event, s style) encoded {
	if p.happens(p.config.CloudEvents) {
		if p.fault.IntN(2) == 0 {
			return encoded{p.bytes.take(appendData(p.bytes.room(1024), e, s, ",", ":")), binaryHeaders(e, s)}
		}
		return encoded{p.bytes.take(appendStructured(p.bytes.room(1024), e, s)), structuredHeaders}
	}
	return encoded{value: p.bytes.take(appendEvent(p.bytes.room(1024), e, s))}
}

// unknownTypes are types of the future; those that begin with a dot are
// schema versions of the event at hand.
var unknownTypes = []string{"OrderGiftWrapped.v1", "OrderGiftWrapped", ".v2", ".v99", ".v0", ".v01", ".V1"}

// illegal makes a well-formed event that the order refuses where events[i]
// stands.
func (p *planner) illegal(pl *plan, i int) (e event, detail string) {
	rng, standing, at := p.fault, pl.standing, pl.now
	if i < len(pl.events) {
		standing, at = pl.before[i], pl.events[i].at
	}
	make := func(k kind, minor int64, why string) (event, string) {
		return pl.event(rng, k, int64(i+1), at, minor), why
	}
	if standing.none {
		return make(delivered, 0, "delivered before it was created")
	}
	switch standing.state {
	case created:
		switch rng.IntN(4) {
		case 0:
			return make(delivered, 0, "delivered while pending")
		case 1:
			return make(paid, standing.total+1, "paid another amount than the total")
		case 2:
			e, _ := make(paid, standing.total, "")
			e.currency = currency{"SEK", 2}
			return e, "paid in another currency"
		default:
			return make(refunded, 1, "refunded while pending")
		}
	case paid, packed:
		switch rng.IntN(3) {
		case 0:
			return make(paid, standing.total, "paid twice")
		case 1:
			return make(amended, 1, "amended after payment")
		default:
			return make(refunded, standing.paid+1, "refunded more than was paid")
		}
	case shipped, delivered, returned:
		if rng.IntN(2) == 0 {
			return make(cancelled, 0, "cancelled after shipping")
		}
		return make(refunded, standing.paid-standing.refunded+1, "refunded more than is left")
	default:
		return make(created, 1, "created twice")
	}
}
