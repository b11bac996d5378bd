// Package pki makes the certificates and keys of a cluster, by the names and subjects that kubeadm gives them.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// life is how long certificates hold; a run takes minutes.
const life = 24 * time.Hour

// Authority signs certificates, and writes them below its folder.
type Authority struct {
	dir  string
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// NewAuthority makes a certificate authority, written to dir/name.crt and dir/name.key.
func NewAuthority(dir, name, commonName string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
	}
	a := &Authority{dir: dir, name: name, key: key, cert: template}
	if err := a.issue(name, template, key); err != nil {
		return nil, err
	}
	if a.pem, err = os.ReadFile(a.CertFile()); err != nil {
		return nil, err
	}
	block, _ := pem.Decode(a.pem)
	a.cert, err = x509.ParseCertificate(block.Bytes)
	return a, err
}

// CertFile is where the authority's own certificate is.
func (a *Authority) CertFile() string { return filepath.Join(a.dir, a.name+".crt") }

// KeyFile is where the authority's key is.
func (a *Authority) KeyFile() string { return filepath.Join(a.dir, a.name+".key") }

// PEM is the authority's own certificate.
func (a *Authority) PEM() []byte { return a.pem }

// Server writes name.crt and name.key of a server that is known by the hosts, and that is a client too (etcd asks for both).
func (a *Authority) Server(name, commonName string, hosts ...string) error {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.sign(name, template)
}

// Client writes name.crt and name.key of a client: the common name is its user name, organizations are its groups.
func (a *Authority) Client(name, commonName string, organizations ...string) error {
	return a.sign(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName, Organization: organizations},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *Authority) sign(name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return a.issue(name, template, key)
}

func (a *Authority) issue(name string, template *x509.Certificate, key *ecdsa.PrivateKey) error {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Minute)
	template.NotAfter = time.Now().Add(life)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(a.dir, name+".crt"), "CERTIFICATE", der); err != nil {
		return err
	}
	return write(filepath.Join(a.dir, name+".key"), "EC PRIVATE KEY", secret)
}

// SigningKeys writes the pair that signs service account tokens: name.key and name.pub.
func SigningKeys(dir, name string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(dir, name+".key"), "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)); err != nil {
		return err
	}
	return write(filepath.Join(dir, name+".pub"), "PUBLIC KEY", public)
}

func write(path, kind string, der []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// Kubeconfig makes a client certificate and writes a kubeconfig file that holds it. It returns the file and its configuration.
func (a *Authority) Kubeconfig(server, name, commonName string, organizations ...string) (string, *rest.Config, error) {
	if err := a.Client(name, commonName, organizations...); err != nil {
		return "", nil, err
	}
	user := &api.AuthInfo{
		ClientCertificate: filepath.Join(a.dir, name+".crt"),
		ClientKey:         filepath.Join(a.dir, name+".key"),
	}
	file := filepath.Join(a.dir, name+".conf")
	config := api.Config{
		Clusters:       map[string]*api.Cluster{"kubernetes": {Server: server, CertificateAuthority: a.CertFile()}},
		AuthInfos:      map[string]*api.AuthInfo{name: user},
		Contexts:       map[string]*api.Context{name: {Cluster: "kubernetes", AuthInfo: name}},
		CurrentContext: name,
	}
	if err := clientcmd.WriteToFile(config, file); err != nil {
		return "", nil, fmt.Errorf("%s: %w", file, err)
	}
	client, err := clientcmd.BuildConfigFromFlags("", file)
	return file, client, err
}
