package schemacheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/orderprojector/orderprojector/domain/order/schemas"
)

// schema is a compiled JSON Schema with its document, whose descriptions say what is expected.
type schema struct {
	compiled *jsonschema.Schema
	document any
}

func compile(s schemas.Schema) (*schema, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(s.Document))
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	location := "urn:orderprojector:" + s.Name()
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(location, document); err != nil {
		return nil, fmt.Errorf("adding: %w", err)
	}
	compiled, err := compiler.Compile(location)
	if err != nil {
		return nil, fmt.Errorf("compiling: %w", err)
	}
	return &schema{compiled, document}, nil
}

// problems lists what the schema finds in a plain event.
func (s *schema) problems(event map[string]any) []Problem {
	if !measurable(event) {
		return nil // the decoder says what is wrong with such a number
	}
	var failed *jsonschema.ValidationError
	if !errors.As(s.compiled.Validate(event), &failed) {
		return nil
	}
	var problems []Problem
	s.collect(failed, event, &problems)
	slices.SortStableFunc(problems, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return problems
}

func (s *schema) collect(failed *jsonschema.ValidationError, event any, problems *[]Problem) {
	if len(failed.Causes) > 0 {
		for _, cause := range failed.Causes {
			s.collect(cause, event, problems)
		}
		return
	}
	at, path := pointer(failed.InstanceLocation), failed.InstanceLocation
	if missing, ok := failed.ErrorKind.(*kind.Required); ok {
		for _, name := range missing.Missing {
			*problems = append(*problems, Problem{
				Path: at + "/" + name, Expected: s.describe(failed.SchemaURL+"/properties/"+escape(name), ""), Found: "nothing",
			})
		}
		return
	}
	says := failed.ErrorKind.LocalizedString(message.NewPrinter(language.English))
	switch k := failed.ErrorKind.(type) {
	case *kind.Type:
		says = "a JSON " + strings.Join(k.Want, " or ")
	case *kind.Enum, *kind.Const:
	default: // the text of the pattern says less than its description
		if described := s.describe(failed.SchemaURL, ""); described != "" {
			says = ""
		}
	}
	*problems = append(*problems, Problem{Path: at, Expected: s.describe(failed.SchemaURL, says), Found: show(lookUp(event, path))})
}

// describe joins what is said and the description of the place in the document, following its reference.
func (s *schema) describe(location, says string) string {
	_, fragment, _ := strings.Cut(location, "#")
	if unescaped, err := url.PathUnescape(fragment); err == nil {
		fragment = unescaped
	}
	place, _ := lookUp(s.document, tokens(fragment)).(map[string]any)
	texts := []string{says}
	if text, ok := place["description"].(string); ok {
		texts = append(texts, text)
	}
	if ref, ok := place["$ref"].(string); ok {
		target, _ := lookUp(s.document, tokens(strings.TrimPrefix(ref, "#"))).(map[string]any)
		if text, ok := target["description"].(string); ok {
			texts = append(texts, text)
		}
	}
	texts = slices.DeleteFunc(texts, func(text string) bool { return text == "" })
	if len(texts) == 0 {
		return "to be there"
	}
	return strings.Join(texts, "; ")
}

// maxDigits is how long a number is at most that is calculated with: longer ones take the square of their length.
const maxDigits = 1000

// measurable reports whether the validator can compare every number: it expands exponents.
func measurable(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, member := range value {
			if !measurable(member) {
				return false
			}
		}
	case []any:
		return !slices.ContainsFunc(value, func(element any) bool { return !measurable(element) })
	case json.Number:
		if len(value) > maxDigits {
			return false
		}
		if _, exponent, found := strings.Cut(strings.ToLower(value.String()), "e"); found {
			n, err := strconv.Atoi(exponent)
			return err == nil && n > -maxDigits && n < maxDigits
		}
	}
	return true
}

func lookUp(value any, path []string) any {
	for _, token := range path {
		switch container := value.(type) {
		case map[string]any:
			value = container[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(container) {
				return nil
			}
			value = container[i]
		default:
			return nil
		}
	}
	return value
}

// pointer writes a JSON pointer.
func pointer(path []string) string {
	var b strings.Builder
	for _, token := range path {
		b.WriteString("/" + escape(token))
	}
	return b.String()
}

func escape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

func tokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	tokens := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, t := range tokens {
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens
}

// show writes a value as JSON, short.
func show(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "a value that cannot be shown"
	}
	const most = 80
	if len(text) <= most {
		return string(text)
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(string(text[:most]), ""), len(text))
}
