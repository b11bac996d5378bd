// Package cel compares Keelson's expression language with cel-go in Kubernetes' environment: on the conformance tests
// of the language, which it reads from their module, and on random expressions over random objects. Both are done by
// its tests, which talk to the example `cel` of the repository; `-program` says where that lies, `-seed` and `-cases`
// which random expressions it is.
package cel
