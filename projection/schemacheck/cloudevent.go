package schemacheck

import (
	"bytes"
	"encoding/base64"
	"mime"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// attributeNames are how a CloudEvent in structured mode calls the members of a plain event.
var attributeNames = map[string]string{"event_id": "id", "order_id": "subject", "occurred_at": "time", "version": "orderversion"}

// plainOf is the plain event that a CloudEvent stands for.
func plainOf(event map[string]any) map[string]any {
	plain := map[string]any{}
	for _, name := range []string{"event_id", "order_id", "type", "version", "occurred_at", "data"} {
		attribute := name
		if other, ok := attributeNames[name]; ok {
			attribute = other
		}
		if value, ok := event[attribute]; ok {
			plain[name] = value
		}
	}
	if text, ok := event["data_base64"].(string); ok {
		if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
			if data, err := jsonschema.UnmarshalJSON(bytes.NewReader(decoded)); err == nil {
				plain["data"] = data
			}
		}
	}
	return plain
}

// renamed gives problems of a plain event the paths of the CloudEvent that it stands for. Paths into data in
// base64 go on behind its member.
func renamed(problems []Problem, event map[string]any) []Problem {
	for i, p := range problems {
		first, rest, _ := strings.Cut(strings.TrimPrefix(p.Path, "/"), "/")
		if attribute, ok := attributeNames[first]; ok && rest == "" {
			problems[i].Path = "/" + attribute
		}
		if event["data_base64"] != nil && first == "data" {
			problems[i].Path = strings.Replace(p.Path, "/data", "/data_base64", 1)
		}
	}
	return problems
}

// attributeProblems lists what is wrong with the attributes that a plain event does not have.
func attributeProblems(event map[string]any) []Problem {
	var problems []Problem
	find := func(attribute, expected string) {
		found := "nothing"
		if value, ok := event[attribute]; ok {
			found = show(value)
		}
		problems = append(problems, Problem{"/" + attribute, expected, found})
	}
	if event["specversion"] != "1.0" {
		find("specversion", `"1.0"`)
	}
	if source, _ := event["source"].(string); source == "" {
		find("source", "a JSON string that is not empty; a URI of the service that publishes")
	}
	if event["data_base64"] != nil && event["data"] != nil {
		find("data_base64", "nothing, because data is there")
	}
	if contentType := event["datacontenttype"]; contentType != nil {
		text, _ := contentType.(string)
		media, _, err := mime.ParseMediaType(text)
		if err != nil || media != "application/json" && media != "text/json" && !strings.HasSuffix(media, "+json") {
			find("datacontenttype", "application/json")
		}
	}
	return problems
}
