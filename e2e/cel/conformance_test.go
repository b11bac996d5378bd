package cel

import (
	"bufio"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	expr "cel.dev/expr"
	conformance "cel.dev/expr/conformance/test"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"google.golang.org/protobuf/encoding/prototext"

	_ "cel.dev/expr/conformance/proto2"
	_ "cel.dev/expr/conformance/proto3"
)

// absent lists the tests that do not pass: a line for a reason, then the tests, indented. `file/section/*` and `file/*`
// are all of a section or file.
//
//go:embed absent.txt
var absent string

// accidental is the reason of those that pass in Kubernetes.
const accidental = "Messages of google.protobuf. Kubernetes has them by accident, and nothing takes one."

// module is the module that has the conformance tests.
const module = "cel.dev/expr"

// simpleTest is a conformance test with its name, `file/section/test`.
type simpleTest struct {
	name string
	*conformance.SimpleTest
}

func simpleTests(t *testing.T) []simpleTest {
	t.Helper()
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(folder)), "tests/simple/testdata/*.textproto"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no tests in %s: %v", folder, err)
	}
	var tests []simpleTest
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var file conformance.SimpleTestFile
		if err := prototext.Unmarshal(text, &file); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, section := range file.Section {
			for _, test := range section.Test {
				tests = append(tests, simpleTest{fmt.Sprintf("%s/%s/%s", file.Name, section.Name, test.Name), test})
			}
		}
	}
	return tests
}

// reasons are why tests do not pass, by their names or those of their sections.
func reasons(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	reason := ""
	for lines := bufio.NewScanner(strings.NewReader(absent)); lines.Scan(); {
		line := lines.Text()
		name := strings.TrimSpace(line)
		switch {
		case name == "":
		case name == line:
			reason = line
		case found[name] != "":
			t.Errorf("%s is listed twice", name)
		default:
			found[name] = reason
		}
	}
	return found
}

// passes says whether an answer is what a test expects, and if not, why.
func passes(test *conformance.SimpleTest, a answer) error {
	failed := a.Error + a.Failure
	want := test.GetValue()
	switch matcher := test.ResultMatcher.(type) {
	case *conformance.SimpleTest_EvalError, *conformance.SimpleTest_AnyEvalErrors:
		// What is not there is no error of the evaluation.
		if failed == "" || strings.Contains(a.Error, "undeclared reference") && !strings.Contains(fmt.Sprint(matcher), "undeclared") {
			return fmt.Errorf("no error of the evaluation but %v", a)
		}
		return nil
	case *conformance.SimpleTest_Unknown, *conformance.SimpleTest_AnyUnknowns:
		return fmt.Errorf("an unknown value is expected")
	case *conformance.SimpleTest_TypedResult:
		if deduced, err := types.ProtoAsType(matcher.TypedResult.DeducedType); err == nil && checker.FormatCELType(deduced) != a.Type {
			return fmt.Errorf("type %s, want %s: %v", a.Type, deduced, a)
		}
		want = matcher.TypedResult.Result
		if test.CheckOnly {
			return nil
		}
	case nil:
		want = &expr.Value{Kind: &expr.Value_BoolValue{BoolValue: true}}
	}
	value, ok := expected(want)
	if !ok {
		return fmt.Errorf("a message is expected")
	}
	if failed != "" || text(sorted(a.Value)) != text(sorted(value)) {
		return fmt.Errorf("want %s: %v", text(sorted(value)), a)
	}
	return nil
}

// variables are those of a test, for the program and for cel-go.
func variables(test *conformance.SimpleTest) ([]variable, map[string]*types.Type, error) {
	var ours []variable
	theirs := map[string]*types.Type{}
	for _, decl := range test.TypeEnv {
		ident := decl.GetIdent()
		if ident == nil {
			return nil, nil, fmt.Errorf("a function is declared")
		}
		ty, err := types.ProtoAsType(ident.Type)
		if err != nil {
			return nil, nil, err
		}
		theirs[decl.Name] = ty
		// What a test declares and does not bind is not evaluated.
		bound := "null"
		if binding, ok := test.Bindings[decl.Name]; ok {
			if bound, err = literal(binding.GetValue()); err != nil {
				return nil, nil, err
			}
		}
		described, err := typed(ty)
		if err != nil {
			return nil, nil, err
		}
		ours = append(ours, variable{Name: decl.Name, Type: described, Expression: bound})
	}
	return ours, theirs, nil
}

// typed describes a type to the program.
func typed(ty *types.Type) (any, error) {
	var params []any
	for _, param := range ty.Parameters() {
		one, err := typed(param)
		if err != nil {
			return nil, err
		}
		params = append(params, one)
	}
	switch ty.Kind() {
	case types.ListKind:
		return map[string]any{"list": params[0]}, nil
	case types.MapKind:
		return map[string]any{"map": params}, nil
	case types.TypeKind:
		if len(params) == 1 {
			return map[string]any{"type": params[0]}, nil
		}
		return "dyn", nil
	case types.OpaqueKind:
		if ty.TypeName() == "optional_type" {
			return map[string]any{"optional": params[0]}, nil
		}
	case types.BoolKind, types.IntKind, types.UintKind, types.DoubleKind, types.StringKind, types.BytesKind, types.DynKind:
		if !ty.IsAssignableType(types.NullType) || ty.Kind() == types.DynKind {
			return ty.String(), nil
		}
	case types.NullTypeKind:
		return "null", nil
	case types.TimestampKind, types.DurationKind:
		return ty.String(), nil
	}
	return nil, fmt.Errorf("%s is a type of protobuf", ty)
}

func TestConformance(t *testing.T) {
	program := start(t)
	listed := reasons(t)
	used := map[string]bool{}
	tests := simpleTests(t)
	passed := 0
	for _, test := range tests {
		err := conforms(t, program, test.SimpleTest)
		parts := strings.SplitN(test.name, "/", 3)
		name := test.name
		for _, whole := range []string{parts[0] + "/*", parts[0] + "/" + parts[1] + "/*"} {
			if listed[whole] != "" {
				name = whole
			}
		}
		used[name] = true
		switch {
		case err == nil && listed[name] != "":
			t.Errorf("%s passes and is listed under %q", test.name, listed[name])
		case err == nil:
			passed++
		case listed[name] == "":
			t.Errorf("%s: %s\n    %v", test.name, strings.TrimSpace(test.Expr), err)
		}
		// What is absent is absent from Kubernetes, too.
		if err != nil && listed[name] != accidental && upstream(t, test.SimpleTest) == nil {
			t.Errorf("%s passes in Kubernetes: %s\n    %v", test.name, strings.TrimSpace(test.Expr), err)
		}
	}
	for name := range listed {
		if !used[name] {
			t.Errorf("%s is listed, and no test", name)
		}
	}
	fmt.Printf("%d of %d conformance tests of the language pass (%.1f %%)\n",
		passed, len(tests), 100*float64(passed)/float64(len(tests)))
}

// upstream says whether Kubernetes' environment gives what a test expects, and if not, why.
func upstream(t *testing.T, test *conformance.SimpleTest) error {
	t.Helper()
	ours, theirs, err := variables(test)
	if err != nil {
		return err
	}
	values := map[string]any{}
	constants := newReference(t, nil, nil, nil)
	for _, one := range ours {
		ast, issues := constants.env.Compile(one.Expression)
		if issues.Err() != nil {
			return issues.Err()
		}
		program, err := constants.env.Program(ast)
		if err != nil {
			return err
		}
		if values[one.Name], _, err = program.Eval(cel.NoVars()); err != nil {
			return err
		}
	}
	return passes(test, newReference(t, theirs, values, nil).ask(test.Expr))
}

// conforms says whether the program gives what a test expects, and if not, why.
func conforms(t *testing.T, program *program, test *conformance.SimpleTest) error {
	t.Helper()
	ours, _, err := variables(test)
	if err != nil {
		return err
	}
	return passes(test, program.ask(t, request{Expr: test.Expr, Variables: ours}))
}
