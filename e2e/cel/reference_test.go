package cel

import (
	"fmt"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// panicked begins the errors of what made cel-go panic.
const panicked = "panic: "

// typeName is the name of the type of `self`. Kubernetes makes one from the time.
const typeName = "selfType"

// minor is the version of Kubernetes whose environment is the reference.
const minor = 36

// reference evaluates expressions with cel-go in Kubernetes' environment.
type reference struct {
	env       *cel.Env
	estimator *library.CostEstimator
	values    map[string]any
}

// newReference makes an environment with variables of cel-go's types and, if there is a schema, `self` of it.
func newReference(t *testing.T, variables map[string]*types.Type, values map[string]any, self *structural.Structural) *reference {
	t.Helper()
	var options []cel.EnvOption
	for name, ty := range variables {
		options = append(options, cel.Variable(name, ty))
	}
	r := &reference{estimator: &library.CostEstimator{}, values: values}
	versioned := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0)}
	if self != nil {
		decl := model.SchemaDeclType(self, false).MaybeAssignTypeName(typeName)
		versioned.DeclTypes = []*apiservercel.DeclType{decl}
		options = append(options, cel.Variable("self", decl.CelType()))
		r.estimator.SizeEstimator = &sizes{root: decl}
	}
	versioned.EnvOptions = options
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, minor)).Extend(versioned)
	if err != nil {
		t.Fatal(err)
	}
	if r.env, err = set.Env(environment.StoredExpressions); err != nil {
		t.Fatal(err)
	}
	return r
}

// ask is what comes of an expression.
func (r *reference) ask(expr string) (a answer) {
	// Some functions of cel-go panic where they are given errors, and some estimates where they know nothing.
	defer func() {
		if why := recover(); why != nil {
			a = answer{Error: fmt.Sprint(panicked, why)}
		}
	}()
	ast, issues := r.env.Compile(expr)
	if issues.Err() != nil {
		return answer{Error: issues.Err().Error()}
	}
	a.Type = checker.FormatCELType(ast.OutputType())
	estimate, err := r.env.EstimateCost(ast, r.estimator, checker.PresenceTestHasCost(false))
	if err != nil {
		return answer{Error: "estimate: " + err.Error()}
	}
	a.Min, a.Max = estimate.Min, estimate.Max
	program, err := r.env.Program(ast, cel.CostTracking(r.estimator))
	if err != nil {
		return answer{Error: "program: " + err.Error()}
	}
	value, details, err := program.Eval(r.values)
	if details != nil && details.ActualCost() != nil {
		a.Cost = *details.ActualCost()
	}
	if err != nil {
		a.Failure = err.Error()
	} else {
		a.Value = tagged(value)
	}
	return a
}

// sizes are the greatest sizes of what lies at a path of an object.
type sizes struct {
	root *apiservercel.DeclType
}

func (s *sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	if len(node.Path()) == 0 {
		return nil
	}
	at := s.root
	for _, name := range node.Path()[1:] {
		switch name {
		case "@items", "@values":
			at = at.ElemType
		case "@keys":
			at = at.KeyType
		default:
			field, ok := at.Fields[name]
			if !ok {
				return nil
			}
			at = field.Type
		}
		if at == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: uint64(at.MaxElements)}
}

func (s *sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
