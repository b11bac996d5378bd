package cel

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

var (
	seed  = flag.Uint64("seed", 1, "the random expressions and objects")
	cases = flag.Int("cases", 5000, "the number of random expressions")
	one   = flag.String("expr", "", "one expression to look at")
)

// perObject is how many expressions one random object is for.
const perObject = 50

// most is how many differences are shown.
const most = 40

// other are the variables beside `self`.
var other = []variable{
	{Name: "x", Type: "dyn", Object: json.RawMessage(`{"a":{"b":1},"s":"q","n":3,"l":[1,2,3],"t":true,"z":null,"f":1.5}`)},
	{Name: "n", Type: "int", Expression: "7"},
	{Name: "s", Type: "string", Expression: "'hello'"},
	{Name: "l", Type: map[string]any{"list": "int"}, Object: json.RawMessage(`[1,2,3]`)},
}

// otherTypes are the types of those variables.
var otherTypes = map[string]*types.Type{"x": types.DynType, "n": types.IntType, "s": types.StringType, "l": types.NewListType(types.IntType)}

func TestRandomExpressions(t *testing.T) {
	program := start(t)
	differ, failed, refused := 0, 0, 0
	g := &generator{Rand: rand.New(rand.NewPCG(*seed, 0))}
	var self *subject
	for n := range *cases {
		if n%perObject == 0 {
			self = newSubject(t, g)
		}
		g.fresh = 0
		expr := g.expr("bool", depth, nil)
		if n%3 == 0 {
			expr = g.expr(pick(g, []string{"int", "string", "list(int)", "list(string)", "map(string, int)", "dyn", "double", "timestamp", "duration", "optional(int)", "uint", "bytes", "type", "quantity", "ip", "cidr", "url", "semver", "optional(string)"}), depth, nil)
		}
		want := self.reference.ask(expr)
		got := program.ask(t, request{Expr: expr, Variables: self.variables})
		if want.Failure != "" {
			failed++
		}
		if want.Error != "" {
			refused++
		}
		if same(got, want) {
			continue
		}
		if differ++; differ <= most {
			t.Errorf("%s\n  want %s\n  got  %s\n  self %s", expr, want, got, self.variables[0].Object)
		}
	}
	fmt.Printf("%d of %d random expressions differ from cel-go's (seed %d; %d failed, %d did not compile)\n", differ, *cases, *seed, failed, refused)
}

// same says whether two answers are the same. Where cel-go panics there is nothing to compare with.
func same(got, want answer) bool {
	if strings.HasPrefix(want.Error, panicked) || strings.HasPrefix(want.Failure, "internal error:") {
		return true
	}
	return got.String() == want.String()
}

// subject is a random object with its schema, for the program and for cel-go.
type subject struct {
	variables []variable
	reference *reference
}

func newSubject(t *testing.T, g *generator) *subject {
	t.Helper()
	schema, err := json.Marshal(g.schema())
	if err != nil {
		t.Fatal(err)
	}
	object, err := json.Marshal(g.object())
	if err != nil {
		t.Fatal(err)
	}
	var props v1.JSONSchemaProps
	if err := json.Unmarshal(schema, &props); err != nil {
		t.Fatal(err)
	}
	var internal apiextensions.JSONSchemaProps
	if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, &internal, nil); err != nil {
		t.Fatal(err)
	}
	s, err := structural.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{"n": 7, "s": "hello", "l": []any{int64(1), int64(2), int64(3)}, "self": schemacel.UnstructuredToVal(decoded(t, object), s)}
	values["x"] = decoded(t, other[0].Object)
	if err, ok := values["self"].(*types.Err); ok {
		t.Fatal(err)
	}
	return &subject{
		variables: append([]variable{{Name: "self", Object: object, Schema: schema}}, other...),
		reference: newReference(t, otherTypes, values, s),
	}
}

// decoded is JSON as Kubernetes decodes it: integers are integers.
func decoded(t *testing.T, text []byte) any {
	t.Helper()
	var value any
	if err := utiljson.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestExpression shows what both say of the expression `-expr`, of an object of the first random schema.
func TestExpression(t *testing.T) {
	if *one == "" {
		return
	}
	self := newSubject(t, &generator{Rand: rand.New(rand.NewPCG(*seed, 0))})
	fmt.Printf("cel-go  %s\nKeelson %s\n", self.reference.ask(*one), start(t).ask(t, request{Expr: *one, Variables: self.variables}))
}
