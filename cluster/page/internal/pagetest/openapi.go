// Package pagetest has helpers for the tests of the page and of its sections.
package pagetest

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
)

// MissingInOpenAPI returns the fields of the JSON of a page, at any depth, that openapi.json does
// not have.
func MissingInOpenAPI(openAPI []byte, page string, answer []byte) ([]string, error) {
	var doc struct {
		Paths map[string]struct {
			Get struct {
				Responses map[string]struct {
					Content map[string]struct{ Schema schema }
				}
			}
		}
		Components struct{ Schemas map[string]schema }
	}
	var v any
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(answer, &v); err != nil {
		return nil, err
	}
	described, ok := doc.Paths[page].Get.Responses["200"].Content["application/json"]
	if !ok {
		return nil, fmt.Errorf("openapi.json does not have %s", page)
	}
	var missing []string
	var compare func(at string, s schema, v any)
	compare = func(at string, s schema, v any) {
		if s.Ref != "" {
			s = doc.Components.Schemas[path.Base(s.Ref)]
		}
		switch v := v.(type) {
		case map[string]any:
			if s.Properties == nil { // any object
				return
			}
			for name, value := range v {
				property, ok := s.Properties[name]
				if !ok {
					missing = append(missing, at+"."+name)
				}
				compare(at+"."+name, property, value)
			}
		case []any:
			for _, value := range v {
				if s.Items != nil {
					compare(at, *s.Items, value)
				}
			}
		}
	}
	compare(page, described.Schema, v)
	slices.Sort(missing)
	return slices.Compact(missing), nil
}

type schema struct {
	Ref        string `json:"$ref"`
	Properties map[string]schema
	Items      *schema
}
