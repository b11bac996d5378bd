package conformance

import (
	"encoding/json"
	"strings"

	openapiv3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
)

// protobufOfOpenAPI is what client-go's users ask for OpenAPI v3 as protobuf by.
const protobufOfOpenAPI = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"

// builtIn tells whether a document (api/v1, apis/apps/v1) is of a group that the server itself has.
func builtIn(document string) bool {
	parts := strings.Split(document, "/")
	if len(parts) < 3 {
		return document == "api/v1"
	}
	group := parts[1]
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") && group != "metrics.k8s.io"
}

// documents of OpenAPI v3 say the same as JSON and as protobuf.
func documents(t *T) {
	paths, err := t.client.Discovery().OpenAPIV3().Paths()
	t.must(err)
	if len(paths) < 40 {
		t.fail("there are only %d documents", len(paths))
	}
	for name, version := range paths {
		// Other checks define resources and register servers, which come and go meanwhile.
		if !builtIn(name) {
			continue
		}
		text, err := version.Schema("application/json")
		t.must(err)
		var want struct {
			OpenAPI    string
			Paths      map[string]any
			Components struct{ Schemas map[string]any }
		}
		t.must(json.Unmarshal(text, &want))
		packed, err := version.Schema(protobufOfOpenAPI)
		t.must(err)
		var got openapiv3.Document
		t.must(proto.Unmarshal(packed, &got))
		equal(t, name+": version", got.GetOpenapi(), want.OpenAPI)
		equal(t, name+": paths", len(got.GetPaths().GetPath()), len(want.Paths))
		schemas := got.GetComponents().GetSchemas().GetAdditionalProperties()
		equal(t, name+": schemas", len(schemas), len(want.Components.Schemas))
		for _, schema := range schemas {
			fields, _ := want.Components.Schemas[schema.GetName()].(map[string]any)
			properties, _ := fields["properties"].(map[string]any)
			is := schema.GetValue().GetSchema()
			equal(t, name+": properties of "+schema.GetName(), len(is.GetProperties().GetAdditionalProperties()), len(properties))
			description, _ := fields["description"].(string)
			equal(t, name+": description of "+schema.GetName(), is.GetDescription(), description)
		}
	}
}
