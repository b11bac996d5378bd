package cel

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

var programPath = flag.String("program", "../../target/debug/examples/cel", "the example `cel` of the repository")

// variable is a variable of an expression: of a type with an expression that makes it, or an object with its schema.
type variable struct {
	Name       string          `json:"name"`
	Type       any             `json:"type,omitempty"`
	Expression string          `json:"expression,omitempty"`
	Object     json.RawMessage `json:"object,omitempty"`
	Schema     json.RawMessage `json:"schema,omitempty"`
}

type request struct {
	Expr      string     `json:"expr"`
	Variables []variable `json:"variables,omitempty"`
}

// answer is what comes of an expression: an error before it can be evaluated; or its type, estimated cost, and a value
// or failure with the real cost.
type answer struct {
	Error   string `json:"error,omitempty"`
	Type    string `json:"type,omitempty"`
	Min     uint64 `json:"min,omitempty"`
	Max     uint64 `json:"max,omitempty"`
	Value   any    `json:"value,omitempty"`
	Failure string `json:"failure,omitempty"`
	Cost    uint64 `json:"cost,omitempty"`
}

// String is the answer as one text, which two answers share if they are the same.
func (a answer) String() string {
	a.Value = sorted(a.Value)
	text, err := json.Marshal(a)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// program is a running example.
type program struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T) *program {
	t.Helper()
	command := exec.Command(*programPath)
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("%v: build it with `cargo build --example cel`", err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := command.Wait(); err != nil {
			t.Errorf("the program: %v", err)
		}
	})
	return &program{in: in, out: bufio.NewReaderSize(out, 1<<20)}
}

func (p *program) ask(t *testing.T, r request) answer {
	t.Helper()
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(p.in, "%s\n", line); err != nil {
		t.Fatalf("%v at %s", err, line)
	}
	text, err := p.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("%v at %s", err, line)
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return a
}
