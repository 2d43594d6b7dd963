// Package schemacheck tells the producer of an event whether it will be accepted, and why not.
//
// The decoder decides, so that the answer is the projection's own. The JSON Schema of the event's type
// and the rules that no schema can express then name every place that is wrong, where the decoder stops at the first.
package schemacheck

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/orderprojector/orderprojector/domain/order/schemas"
	"github.com/orderprojector/orderprojector/projection"
)

// Verdicts on an event.
const (
	Accepted    = "accepted"    // the order alone can still refuse it
	Invalid     = "invalid"     // it would become a dead letter
	Unsupported = "unsupported" // it would become a dead letter that waits for a release that knows its type
)

// Formats of an event.
const (
	PlainJSON  = "plain JSON"
	Structured = "CloudEvents, structured mode"
)

// Verdict is what becomes of one event.
type Verdict struct {
	Format  string
	Verdict string
	// What the event says it is, as far as that is readable.
	Type, OrderID, EventID string
	Version                int64
	// Reason is the detail of the dead letter, empty when the event is accepted.
	Reason   string
	Problems []Problem
	// Undecided is what only the order's state and the record around the event decide. It is empty unless the event is accepted.
	Undecided []string
}

// Problem is one place that is wrong.
type Problem struct {
	Path     string // a JSON pointer into the event; empty for the whole of it
	Expected string
	Found    string
}

// Checker checks events. It is safe for concurrent use.
type Checker struct {
	decoder projection.Decoder
	schemas map[string]*schema // by name
	names   []string
}

// New compiles the schemas. An error means that the program was built wrongly.
func New() (*Checker, error) {
	all, err := schemas.All()
	if err != nil {
		return nil, err
	}
	c := &Checker{decoder: projection.EventDecoder{}, schemas: map[string]*schema{}}
	for _, s := range all {
		if c.schemas[s.Name()], err = compile(s); err != nil {
			return nil, fmt.Errorf("schema %s: %w", s.Name(), err)
		}
		c.names = append(c.names, s.Name())
	}
	return c, nil
}

// Check says what becomes of an event: plain JSON, or a CloudEvent in structured mode, which is told by
// its specversion.
func (c *Checker) Check(value []byte) Verdict {
	v := Verdict{Format: PlainJSON, Verdict: Accepted}
	record := projection.Record{Value: value}
	written, isObject := parse(value)
	if _, found := written["specversion"]; found {
		v.Format = Structured
		record.Headers = []projection.Header{{Key: "content-type", Value: []byte("application/cloudevents+json")}}
	}
	env, err := c.decoder.Decode(&record)
	var invalid *projection.DecodeError
	switch {
	case errors.As(err, &invalid):
		v.Verdict, v.Reason = Invalid, invalid.Detail
		v.OrderID, v.EventID, v.Version = invalid.OrderID, invalid.EventID, invalid.Version
		v.Type, _ = written["type"].(string)
	case err != nil:
		v.Verdict, v.Reason = Invalid, err.Error()
	default:
		v.Type, v.OrderID, v.EventID, v.Version = env.Type, env.OrderID, env.EventID, env.Version
		if env.Event != nil {
			v.Undecided = undecided(&env)
			return v
		}
		v.Verdict, v.Reason = Unsupported, fmt.Sprintf("unknown event type or schema version %q", env.Type)
	}
	switch {
	case isObject && v.Format == Structured:
		v.Problems = append(attributeProblems(written), renamed(c.problems(plainOf(written)), written)...)
	case isObject:
		v.Problems = c.problems(written)
	}
	if len(v.Problems) == 0 {
		v.Problems = []Problem{{Expected: "an event that keeps the contract", Found: v.Reason}}
	}
	return v
}

// problems lists what the schema of a plain event's type finds, and the rules beside it.
func (c *Checker) problems(event map[string]any) []Problem {
	written, isText := event["type"].(string)
	name, version := projection.SplitType(written)
	full := fmt.Sprintf("%s.v%d", name, version)
	if s := c.schemas[full]; s != nil {
		return merge(s.problems(event), beyond(event, full))
	}
	var problems []Problem
	if isText && written != "" {
		problems = append(problems, Problem{"/type", "one of " + strings.Join(c.names, ", "), show(written)})
	}
	// The envelope is the same for every type; of the data nothing is known.
	rest := slices.DeleteFunc(c.schemas[c.names[0]].problems(event), func(p Problem) bool {
		return p.Path == "/data" || strings.HasPrefix(p.Path, "/data/") || p.Path == "/type" && isText && written != ""
	})
	return merge(append(problems, rest...), beyond(event, ""))
}

// merge adds problems of places that have none yet, at the place or inside.
func merge(problems, more []Problem) []Problem {
	taken := map[string]bool{}
	take := func(path string) {
		for ; path != "" && !taken[path]; path = path[:max(0, strings.LastIndexByte(path, '/'))] {
			taken[path] = true
		}
		taken[""] = true
	}
	for _, p := range problems {
		take(p.Path)
	}
	for _, p := range more {
		if !taken[p.Path] {
			take(p.Path)
			problems = append(problems, p)
		}
	}
	return problems
}

// parse reads a JSON object, leniently: what is wrong with the text, the decoder says.
func parse(value []byte) (event map[string]any, isObject bool) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return nil, false
	}
	event, isObject = parsed.(map[string]any)
	return event, isObject
}
