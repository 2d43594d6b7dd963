package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Description is what a schema says to people.
type Description struct {
	Summary string
	Fields  []Field // of the data, in the order of the document; the fields of a field follow it
	Example []byte  // a whole event, as plain JSON
}

// Field is one member of the data.
type Field struct {
	Path     string // such as "total.amount" or "lines[].sku"
	Type     string // such as "string" or "string or number"
	Required bool
	Summary  string
}

// node is the part of a JSON Schema that these files use.
type node struct {
	Ref         string            `json:"$ref"`
	Type        typeNames         `json:"type"`
	Description string            `json:"description"`
	Required    []string          `json:"required"`
	Properties  members           `json:"properties"`
	Items       *node             `json:"items"`
	Defs        members           `json:"$defs"`
	Examples    []json.RawMessage `json:"examples"`
}

// Describe reads the schema's document.
func (s Schema) Describe() (Description, error) {
	var root node
	if err := json.Unmarshal(s.Document, &root); err != nil {
		return Description{}, fmt.Errorf("schema %s: %w", s.Name(), err)
	}
	data := root.Defs.get("data")
	if data == nil || len(root.Examples) == 0 {
		return Description{}, fmt.Errorf("schema %s: there is no #/$defs/data or no example", s.Name())
	}
	d := Description{Summary: root.Description, Example: root.Examples[0]}
	var err error
	if d.Fields, err = root.fields(data, ""); err != nil {
		return Description{}, fmt.Errorf("schema %s: %w", s.Name(), err)
	}
	return d, nil
}

// fields lists the members of an object and what is in them.
func (n *node) fields(object *node, prefix string) ([]Field, error) {
	var fields []Field
	for _, m := range object.Properties {
		target, err := n.resolve(m.node)
		if err != nil {
			return nil, err
		}
		f := Field{
			Path: prefix + m.name, Type: strings.Join(target.Type, " or "), Required: slices.Contains(object.Required, m.name),
			Summary: m.node.Description,
		}
		if target != m.node && target.Description != "" {
			f.Summary = strings.TrimPrefix(f.Summary+"; "+target.Description, "; ")
		}
		fields = append(fields, f)
		inner, at := target, f.Path+"."
		if target.Items != nil {
			if inner, err = n.resolve(target.Items); err != nil {
				return nil, err
			}
			at = f.Path + "[]."
		}
		below, err := n.fields(inner, at)
		if err != nil {
			return nil, err
		}
		fields = append(fields, below...)
	}
	return fields, nil
}

// resolve follows a reference into the document's definitions.
func (n *node) resolve(to *node) (*node, error) {
	if to.Ref == "" {
		return to, nil
	}
	target := n.Defs.get(strings.TrimPrefix(to.Ref, "#/$defs/"))
	if target == nil {
		return nil, fmt.Errorf("%s is not defined", to.Ref)
	}
	return target, nil
}

// typeNames is one name of a type or several.
type typeNames []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *typeNames) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*t = typeNames{""}
		return json.Unmarshal(b, &(*t)[0])
	}
	return json.Unmarshal(b, (*[]string)(t))
}

// members are the members of an object in the order of the document.
type members []member

type member struct {
	name string
	node *node
}

func (m members) get(name string) *node {
	for i := range m {
		if m[i].name == name {
			return m[i].node
		}
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *members) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return errors.Join(err, errors.New("not an object"))
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		entry := member{node: &node{}}
		entry.name, _ = name.(string)
		if err := dec.Decode(entry.node); err != nil {
			return err
		}
		*m = append(*m, entry)
	}
	return nil
}
