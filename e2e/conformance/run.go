// Package conformance checks that a cluster whose server is keelson behaves as one of kube-apiserver's: each check is a user of
// client-go (or of kubectl), and is named for the behaviour of the conformance tests that it shows.
package conformance

import (
	"context"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson/e2e/controlplane"
)

const (
	// atOnce is how many checks run at the same time.
	atOnce = 12
	// longest is how long one check may take.
	longest = 150 * time.Second
	// soon is how long something may take that the control loop is to bring about, on a machine that is busy with other checks.
	soon = 45 * time.Second
	// look is the time between two looks at it.
	look = 100 * time.Millisecond
)

// check is one behaviour.
type check struct {
	name string
	do   func(*T)
}

// T is a check that runs. Its methods end it where something is wrong.
type T struct {
	ctx       context.Context
	plane     *controlplane.Plane
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
	kubectl   string // the binary
	cleanups  []func()
	notes     []string
}

// failure is what a check that went wrong panics with.
type failure string

// Result is how a check ended.
type Result struct {
	Name string
	Time time.Duration
	Err  error
	// Notes are what was measured.
	Notes []string
}

// Run runs the checks whose names match: first those that do not disturb each other, at the same time, then those that hurt the
// control plane, one by one. Each result is told as soon as it is there.
func Run(ctx context.Context, plane *controlplane.Plane, kubectl string, only *regexp.Regexp, tell func(Result)) error {
	config := rest.CopyConfig(plane.Admin)
	config.QPS, config.Burst = 500, 1000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	one := func(c check) Result {
		ctx, cancel := context.WithTimeout(ctx, longest)
		defer cancel()
		t := &T{ctx: ctx, plane: plane, config: config, client: client, kubectl: kubectl}
		start := time.Now()
		err := t.run(c)
		return Result{c.name, time.Since(start), err, t.notes}
	}

	results, seats := make(chan Result), make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for _, c := range peaceful {
		if !only.MatchString(c.name) {
			continue
		}
		running.Add(1)
		seats <- struct{}{}
		go func() {
			defer running.Done()
			result := one(c)
			<-seats
			results <- result
		}()
	}
	go func() {
		running.Wait()
		close(results)
	}()
	for result := range results {
		tell(result)
	}
	for _, c := range faults {
		if only.MatchString(c.name) && ctx.Err() == nil {
			tell(one(c))
		}
	}
	return ctx.Err()
}

// undoTime is how long what undoes a check may take.
const undoTime = 30 * time.Second

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// run makes a namespace for the check and runs it there.
func (t *T) run(c check) (err error) {
	defer func() {
		for _, cleanup := range t.cleanups {
			cleanup()
		}
		switch wrong := recover().(type) {
		case nil:
		case failure:
			err = fmt.Errorf("%s", string(wrong))
		default:
			err = fmt.Errorf("panic: %v\n%s", wrong, debug.Stack())
		}
	}()
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(c.name), "-"), "-")
	t.namespace = strings.Trim("e2e-"+name[:min(len(name), 40)], "-")
	_, err = t.client.CoreV1().Namespaces().Create(t.ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: t.namespace, Labels: map[string]string{ours: "true"}},
	}, metav1.CreateOptions{})
	t.must(err)
	t.undo(func(ctx context.Context) {
		// All of them must be gone at the end, see everythingGoes.
		_ = t.client.CoreV1().Namespaces().Delete(ctx, t.namespace, metav1.DeleteOptions{})
	})
	t.eventually("default service account", func() (string, error) {
		_, err := t.client.CoreV1().ServiceAccounts(t.namespace).Get(t.ctx, "default", metav1.GetOptions{})
		return "", err
	})
	c.do(t)
	return nil
}

// cleanup has something done when the check is over.
func (t *T) cleanup(do func()) { t.cleanups = append(t.cleanups, do) }

// undo has something done on the server when the check is over, even if its time is.
func (t *T) undo(do func(context.Context)) {
	t.cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), undoTime)
		defer cancel()
		do(ctx)
	})
}

// note has something told beside the result of the check.
func (t *T) note(format string, args ...any) { t.notes = append(t.notes, fmt.Sprintf(format, args...)) }

// fail ends the check.
func (t *T) fail(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

// must ends the check where there is an error.
func (t *T) must(err error) {
	if err != nil {
		t.fail("%v", err)
	}
}

// eventually waits until there is no error and nothing missing; what is missing at the end is told.
func (t *T) eventually(what string, missing func() (string, error)) {
	t.within(soon, what, missing)
}

// within is eventually with a time of its own.
func (t *T) within(limit time.Duration, what string, missing func() (string, error)) {
	deadline := time.Now().Add(limit)
	for {
		lack, err := missing()
		if err == nil && lack == "" {
			return
		}
		if time.Now().After(deadline) || t.ctx.Err() != nil {
			t.fail("%s, after %v: %s %v", what, limit, lack, err)
		}
		select {
		case <-t.ctx.Done():
		case <-time.After(look):
		}
	}
}

// equal ends the check where the two differ.
func equal[V comparable](t *T, what string, got, want V) {
	if got != want {
		t.fail("%s: %v, not %v", what, got, want)
	}
}

// differs is what is missing where the two differ.
func differs[V comparable](what string, got, want V) string {
	if got == want {
		return ""
	}
	return fmt.Sprintf("%s: %v, not %v", what, got, want)
}
