package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fileLayer reads the YAML file, if one is named. Its keys are the settings'
// names; an unknown or repeated key is refused, because a setting that is
// silently not applied is worse than a start that fails.
func fileLayer(src Sources, settings []setting) (layer, error) {
	path := ""
	if v, ok := src.LookupEnv(FileEnv); ok {
		path = v
	}
	if src.Flags != nil {
		if f := src.Flags.Lookup(FileFlag); f != nil && f.Changed {
			path = f.Value.String()
		}
	}
	values := map[string]string{}
	if path != "" {
		content, err := src.ReadFile(path)
		if err != nil {
			return layer{}, &Error{Name: FileFlag, Value: path, Problem: "cannot be read", Err: err}
		}
		if values, err = parseFile(content, settings); err != nil {
			return layer{}, &Error{Name: FileFlag, Value: path, Problem: "is not usable", Err: err}
		}
	}
	return layer{
		get: func(_ setting, name, _ string) (string, bool) {
			v, ok := values[name]
			return v, ok
		},
		origin: func(string, string) Origin { return Origin("file " + path) },
	}, nil
}

func parseFile(content []byte, settings []setting) (map[string]string, error) {
	values := map[string]string{}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var doc yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return values, nil // an empty file
	case err != nil:
		return nil, err
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document")
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return values, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("the top is not a mapping of settings")
	}
	known := map[string]bool{}
	for _, s := range settings {
		known[s.name] = true
		if s.fileVariant {
			known[s.name+fileSuffix] = true
		}
	}
	var problems []error
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		value, err := scalar(node)
		_, repeated := values[key.Value]
		switch {
		case !known[key.Value]:
			problems = append(problems, fmt.Errorf("line %d: unknown key %q%s", key.Line, key.Value, suggest(key.Value, known)))
		case repeated:
			problems = append(problems, fmt.Errorf("line %d: key %q appears twice", key.Line, key.Value))
		case err != nil:
			problems = append(problems, fmt.Errorf("line %d: %s: %w", node.Line, key.Value, err))
		default:
			values[key.Value] = value
		}
	}
	return values, errors.Join(problems...)
}

// scalar reads a value as text, so that flags, environment and file are
// parsed by the same code. A sequence becomes a comma-separated list.
func scalar(node *yaml.Node) (string, error) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Tag == "!!null" {
			return "", errors.New("has no value")
		}
		return node.Value, nil
	case yaml.SequenceNode:
		var parts []string
		for _, item := range node.Content {
			if item.Kind != yaml.ScalarNode {
				return "", errors.New("is not a list of plain values")
			}
			parts = append(parts, item.Value)
		}
		return strings.Join(parts, ","), nil
	}
	return "", errors.New("is not a plain value")
}

// suggest names a known key that looks like the unknown one.
func suggest(unknown string, known map[string]bool) string {
	normal := strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(unknown))
	var close []string
	for k := range known {
		if k == normal || strings.HasSuffix(k, "-"+normal) || strings.HasPrefix(k, normal) {
			close = append(close, k)
		}
	}
	if len(close) == 0 {
		return ""
	}
	sort.Strings(close)
	return fmt.Sprintf(" (did you mean %s?)", strings.Join(close, " or "))
}
