// Package kubelet is the HTTPS server of a kubelet: the kubelet's own handlers, behind which is the streaming library of
// container runtimes. Who may use it is asked of the API server. The containers are processes of this machine.
package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/cri-streaming/pkg/streaming"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/server"
)

// WebSockets is the feature by which kubelets declare that they speak the newer protocols over WebSocket themselves.
const WebSockets = "ExtendWebSocketsToKubelet"

// reviewTTL is how long the API server's word on a user is kept.
const reviewTTL = 10 * time.Second

// Options say what the kubelet is.
type Options struct {
	// Node is the name of its node.
	Node string
	// Address is what it listens at.
	Address string
	// Client asks the API server who may do what.
	Client kubernetes.Interface
	// ClientCA is the file of the authority that clients' certificates are from; Cert and Key are the kubelet's own.
	ClientCA, Cert, Key string
	// Folder is where containers and logs are.
	Folder string
	// Pods are those of the node.
	Pods func() []*corev1.Pod
	// WebSockets is whether it speaks WebSocket. If not, it refuses it.
	WebSockets bool
}

// Kubelet is a server that runs.
type Kubelet struct {
	*runtime
	Port      int32
	server    *http.Server
	streaming streaming.Server
	stop      context.CancelFunc
}

// Start makes the server, and serves until Stop.
func Start(options Options) (*Kubelet, error) {
	if err := os.MkdirAll(filepath.Join(options.Folder, "logs"), 0o755); err != nil {
		return nil, err
	}
	cert, err := tls.LoadX509KeyPair(options.Cert, options.Key)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	auth, err := newAuth(ctx, options)
	if err != nil {
		stop()
		return nil, err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(options.Address, "0"))
	if err != nil {
		stop()
		return nil, err
	}
	r := &runtime{folder: options.Folder, containers: map[string]*container{}}
	k := &Kubelet{runtime: r, Port: int32(listener.Addr().(*net.TCPAddr).Port), stop: stop}
	if k.streaming, err = startStreaming(r); err != nil {
		stop()
		return nil, err
	}
	h := &host{options: options, runtime: r, streaming: k.streaming, begun: metav1.Now()}
	handlers := server.NewServer(ctx, h, summary{h}, nil, nil, auth, &kubeletconfig.KubeletConfiguration{
		EnableDebuggingHandlers: true, EnableSystemLogHandler: true, EnableProfilingHandler: true, EnableDebugFlagsHandler: true,
	})
	k.server = &http.Server{
		Handler: refusing(&handlers, !options.WebSockets),
		// Any certificate: it is looked at with the request, as a kubelet does.
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12},
	}
	go func() { _ = k.server.ServeTLS(listener, "", "") }()
	return k, nil
}

// Stop ends the server and every process.
func (k *Kubelet) Stop() {
	_ = k.server.Close()
	_ = k.streaming.Stop()
	k.killAll("")
	k.stop()
}

// startStreaming runs the server of streams, which the kubelet hands its clients on to.
func startStreaming(r *runtime) (streaming.Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := streaming.DefaultConfig
	config.Addr = listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, err
	}
	s, err := streaming.NewServer(config, r)
	if err != nil {
		return nil, err
	}
	go func() { _ = s.Start(true) }()
	return s, nil
}

// refusing refuses WebSocket.
func refusing(handler http.Handler, refuses bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if refuses && strings.EqualFold(request.Header.Get("Upgrade"), "websocket") {
			http.Error(w, "this kubelet speaks SPDY only", http.StatusBadRequest)
			return
		}
		handler.ServeHTTP(w, request)
	})
}

// newAuth is who may do what: clients have certificates, and the API server is asked what they may.
func newAuth(ctx context.Context, options Options) (server.AuthInterface, error) {
	authority, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-bundle", options.ClientCA)
	if err != nil {
		return nil, err
	}
	go authority.Run(ctx, 1)
	authenticator, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{ClientCertificateCAContentProvider: authority}.New()
	if err != nil {
		return nil, fmt.Errorf("authentication: %w", err)
	}
	authorizer, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: options.Client.AuthorizationV1(),
		AllowCacheTTL:             reviewTTL,
		DenyCacheTTL:              reviewTTL,
		WebhookRetryBackoff:       genericoptions.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return nil, fmt.Errorf("authorization: %w", err)
	}
	attributes := server.NewNodeAuthorizerAttributesGetter(types.NodeName(options.Node))
	return server.NewKubeletAuth(authenticator, attributes, authorizer, authority), nil
}
