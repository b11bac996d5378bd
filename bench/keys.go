package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// keyBits is the size of kubeadm's RSA keys.
const keyBits = 2048

// keys are the certificates of the servers and of the client, as files for the former.
type keys struct {
	folder string
	ca     *x509.Certificate
	signer *rsa.PrivateKey
	roots  *x509.CertPool
	admin  tls.Certificate
}

// makeKeys writes an authority, a serving certificate, those of an administrator and of the front proxy, and a key for service accounts.
func makeKeys(folder string) (*keys, error) {
	k := &keys{folder: folder, roots: x509.NewCertPool()}
	var err error
	if k.signer, err = rsa.GenerateKey(rand.Reader, keyBits); err != nil {
		return nil, err
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, k.signer.Public(), k.signer)
	if err != nil {
		return nil, err
	}
	if k.ca, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	k.roots.AddCert(k.ca)
	if err := k.write("ca.crt", "CERTIFICATE", der); err != nil {
		return nil, err
	}
	for name, subject := range map[string]pkix.Name{
		"server":      {CommonName: "kube-apiserver"},
		"admin":       {CommonName: "admin", Organization: []string{"system:masters"}},
		"front-proxy": {CommonName: "front-proxy-client"},
		"accounts":    {CommonName: "service accounts"},
	} {
		if err := k.issue(name, subject); err != nil {
			return nil, err
		}
	}
	k.admin, err = tls.LoadX509KeyPair(filepath.Join(folder, "admin.crt"), filepath.Join(folder, "admin.key"))
	return k, err
}

func (k *keys) issue(name string, subject pkix.Name) error {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, k.certificate(subject), k.ca, key.Public(), k.signer)
	if err != nil {
		return err
	}
	if err := k.write(name+".key", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key)); err != nil {
		return err
	}
	return k.write(name+".crt", "CERTIFICATE", der)
}

func (k *keys) write(name, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(k.folder, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// config is that of the administrator's connections, with HTTP/2.
func (k *keys) config() *tls.Config { return k.configOf(k.admin) }

func (k *keys) configOf(client tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: k.roots, Certificates: []tls.Certificate{client}, NextProtos: []string{"h2"}}
}

// user is the configuration of another user's connections. Keys are elliptic, as those that kubelets make for themselves.
func (k *keys) user(name string, groups ...string) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	certificate := k.certificate(pkix.Name{CommonName: name, Organization: groups})
	der, err := x509.CreateCertificate(rand.Reader, certificate, k.ca, key.Public(), k.signer)
	return k.configOf(tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}), err
}

// certificate is what the authority signs for a client or a server.
func (k *keys) certificate(subject pkix.Name) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject, NotBefore: k.ca.NotBefore, NotAfter: k.ca.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
}

// client is Go's own (client-go's), on one HTTP/2 connection. It does not ask for compression: what is measured is the API.
func (k *keys) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: k.config(), ForceAttemptHTTP2: true, DisableCompression: true, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
	}}
}
