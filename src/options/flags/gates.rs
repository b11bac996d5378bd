//! Feature gates: the names that v1.36 knows, their stages and defaults, and the values that a
//! command line sets.

use std::collections::BTreeMap;

use super::FlagError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    Stable,
    Deprecated,
    /// Grown up (or gone): cannot be set to anything but its default.
    Locked,
}

/// The effect of a gate on this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Asks for it.
    Consulted,
    /// Always behaves as with the default; other values are refused.
    Fixed,
    /// No effect that a client could tell: the gate is another component's (the kubelet's, a
    /// controller's, the scheduler's, a Go client's), is about the internals of kube-apiserver, or
    /// tunes what is refused as a whole.
    Elsewhere,
}

#[derive(Clone, Copy, Debug)]
struct Gate {
    name: &'static str,
    default: bool,
    stage: Stage,
    effect: Effect,
}

impl Gate {
    const fn new(name: &'static str, default: bool, stage: Stage) -> Self {
        Self {
            name,
            default,
            stage,
            effect: Effect::Elsewhere,
        }
    }
    const fn consulted(self) -> Self {
        Self {
            effect: Effect::Consulted,
            ..self
        }
    }
    const fn fixed(self) -> Self {
        Self {
            effect: Effect::Fixed,
            ..self
        }
    }
    const fn alpha(name: &'static str, default: bool) -> Self {
        Self::new(name, default, Stage::Alpha)
    }
    const fn beta(name: &'static str, default: bool) -> Self {
        Self::new(name, default, Stage::Beta)
    }
    const fn stable(name: &'static str, default: bool) -> Self {
        Self::new(name, default, Stage::Stable)
    }
    const fn deprecated(name: &'static str, default: bool) -> Self {
        Self::new(name, default, Stage::Deprecated)
    }
    const fn locked(name: &'static str, default: bool) -> Self {
        Self::new(name, default, Stage::Locked)
    }
}

/// Sets every alpha gate that is not named itself.
const ALL_ALPHA: &str = "AllAlpha";
/// Sets every beta gate that is not named itself.
const ALL_BETA: &str = "AllBeta";

/// The feature gates of the command line. The component prefix (`kube:`) is understood; others are
/// ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<String, bool>);

impl FeatureGates {
    /// Reads the values of `--feature-gates`, each a comma-separated list of
    /// `[component:]name=bool`.
    ///
    /// # Errors
    /// An unknown gate, a locked one set otherwise, or something that is not a boolean
    /// (component-base `featuregate`).
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Self, FlagError> {
        let mut set = BTreeMap::new();
        for pair in values
            .into_iter()
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| invalid(pair, format!("missing bool value for {pair}")))?;
            let name = match name.split_once(':') {
                None | Some(("", _)) => name.trim_start_matches(':'),
                Some(("kube", name)) => name,
                Some((component, _)) => {
                    return Err(invalid(
                        pair,
                        format!("component not registered: {component}"),
                    ));
                }
            };
            let value = super::parse_bool(value)
                .ok_or_else(|| invalid(pair, format!("invalid value of {name}: {value}")))?;
            let gate = find(name)
                .ok_or_else(|| FlagError::new(format!("unrecognized feature gate: {name}")))?;
            if gate.stage == Stage::Locked && gate.default != value {
                let message = format!(
                    "cannot set feature gate {name} to {value}, feature is locked to {}",
                    gate.default
                );
                return Err(FlagError::new(message));
            }
            set.insert(name.to_owned(), value);
        }
        Ok(Self(set))
    }

    /// Reports whether the gate is on; false for a name that does not exist.
    pub fn enabled(&self, name: &str) -> bool {
        if let Some(value) = self.0.get(name) {
            return *value;
        }
        let Some(gate) = find(name) else { return false };
        let all = match gate.stage {
            Stage::Alpha => self.0.get(ALL_ALPHA),
            Stage::Beta => self.0.get(ALL_BETA),
            _ => None,
        };
        all.copied().unwrap_or(gate.default)
    }

    /// Refuses gates that would change what this server does if it asked for them.
    ///
    /// # Errors
    /// A gate that it does not ask for is not what it is by default.
    pub fn check_effect(&self) -> Result<(), FlagError> {
        let changed =
            |gate: &&Gate| gate.effect == Effect::Fixed && self.enabled(gate.name) != gate.default;
        let names: Vec<String> = GATES
            .iter()
            .filter(changed)
            .map(|gate| format!("{}={}", gate.name, !gate.default))
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let why = "this server behaves as with the default and knows no other way";
        Err(FlagError::new(format!(
            "--feature-gates: {} is not supported: {why}",
            names.join(",")
        )))
    }

    /// All gates with their stages as metrics tell them (component-base `featuregate`), and whether
    /// they are on.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        GATES.iter().map(|gate| {
            let stage = match gate.stage {
                Stage::Alpha => "ALPHA",
                Stage::Beta => "BETA",
                Stage::Stable | Stage::Locked => "",
                Stage::Deprecated => "DEPRECATED",
            };
            (gate.name, stage, self.enabled(gate.name))
        })
    }

    /// The gates that are not what they are by default, and whether this server asks for them.
    pub fn changed(&self) -> impl Iterator<Item = (&'static str, bool, bool)> {
        let changed = GATES
            .iter()
            .filter(|gate| self.enabled(gate.name) != gate.default);
        changed.map(|gate| (gate.name, !gate.default, gate.effect == Effect::Consulted))
    }
}

fn find(name: &str) -> Option<&'static Gate> {
    GATES
        .binary_search_by(|gate| gate.name.cmp(name))
        .ok()
        .and_then(|at| GATES.get(at))
}

fn invalid(value: &str, why: String) -> FlagError {
    FlagError::invalid("feature-gates", value, &why)
}

/// Sorted by name.
const GATES: &[Gate] = &[
    Gate::beta("APIResponseCompression", true).consulted(),
    Gate::beta("APIServerIdentity", true).fixed(),
    Gate::locked("APIServerTracing", true),
    Gate::alpha("APIServingWithRoutine", false),
    Gate::locked("AggregatedDiscoveryRemoveBetaType", true),
    Gate::alpha("AllAlpha", false),
    Gate::beta("AllBeta", false),
    Gate::deprecated("AllowDNSOnlyNodeCSR", false),
    Gate::deprecated("AllowInsecureKubeletCertificateSigningRequests", false).fixed(),
    Gate::locked("AllowOverwriteTerminationGracePeriodSeconds", false),
    Gate::beta("AllowParsingUserUIDFromCertAuth", true).consulted(),
    Gate::stable("AllowServiceExternalIPs", true),
    Gate::alpha("AllowUnsafeMalformedObjectDeletion", false).fixed(),
    Gate::locked("AnonymousAuthConfigurableEndpoints", true),
    Gate::locked("AnyVolumeDataSource", true),
    Gate::beta("AtomicFIFO", true),
    Gate::locked("AuthorizeNodeWithSelectors", true),
    Gate::beta("AuthorizePodWebsocketUpgradeCreatePermission", true).fixed(),
    Gate::locked("AuthorizeWithSelectors", true),
    Gate::locked("BtreeWatchCache", true),
    Gate::alpha("CBORServingAndStorage", false).fixed(),
    Gate::alpha("CPUManagerPolicyAlphaOptions", false),
    Gate::beta("CPUManagerPolicyBetaOptions", true),
    Gate::locked("CPUManagerPolicyOptions", true),
    Gate::beta("CRDObservedGenerationTracking", true).fixed(),
    Gate::locked("CRDValidationRatcheting", true),
    Gate::alpha("CRIListStreaming", false),
    Gate::locked("CSIServiceAccountTokenSecrets", true),
    Gate::alpha("CSIVolumeHealth", false),
    Gate::deprecated("ChangeContainerStatusOnKubeletRestart", false),
    Gate::beta("ClearingNominatedNodeNameAfterBinding", true).fixed(),
    Gate::beta("ClientsAllowCARotation", true),
    Gate::alpha("ClientsAllowCBOR", false),
    Gate::beta("ClientsAllowTLSCacheGC", true),
    Gate::alpha("ClientsPreferCBOR", false),
    Gate::alpha(
        "CloudControllerManagerWatchBasedRoutesReconciliation",
        false,
    ),
    Gate::alpha("CloudControllerManagerWebhook", false),
    Gate::beta("ClusterTrustBundle", false).fixed(),
    Gate::beta("ClusterTrustBundleProjection", false).fixed(),
    Gate::beta("ComponentFlagz", true).consulted(),
    Gate::beta("ComponentStatusz", true).consulted(),
    Gate::beta("ConcurrentWatchObjectDecode", false),
    Gate::locked("ConsistentListFromCache", true),
    Gate::beta("ConstrainedImpersonation", true).consulted(),
    Gate::beta("ContainerCheckpoint", true),
    Gate::beta("ContainerRestartRules", true).fixed(),
    Gate::alpha("ContainerStopSignals", false).fixed(),
    Gate::beta("ContextualLogging", true),
    Gate::alpha("ControllerManagerReleaseLeaderElectionLockOnExit", false),
    Gate::beta("CoordinatedLeaderElection", false).fixed(),
    Gate::alpha("CrossNamespaceVolumeDataSource", false).fixed(),
    Gate::locked("CustomResourceFieldSelectors", true),
    Gate::locked("DRAAdminAccess", true),
    Gate::beta("DRAConsumableCapacity", true).fixed(),
    Gate::beta("DRADeviceBindingConditions", true).fixed(),
    Gate::beta("DRADeviceTaintRules", false).fixed(),
    Gate::beta("DRADeviceTaints", true).fixed(),
    Gate::beta("DRAExtendedResource", true).fixed(),
    Gate::alpha("DRAListTypeAttributes", false).fixed(),
    Gate::alpha("DRANodeAllocatableResources", false).fixed(),
    Gate::beta("DRAPartitionableDevices", true).fixed(),
    Gate::stable("DRAPrioritizedList", true).fixed(),
    Gate::beta("DRAResourceClaimDeviceStatus", true).fixed(),
    Gate::beta("DRAResourceClaimGranularStatusAuthorization", true).fixed(),
    Gate::alpha("DRAResourcePoolStatus", false).fixed(),
    Gate::beta("DRASchedulerFilterTimeout", true),
    Gate::alpha("DRAWorkloadResourceClaims", false).fixed(),
    Gate::locked("DeclarativeValidation", true),
    Gate::beta("DeclarativeValidationBeta", true),
    Gate::deprecated("DeclarativeValidationTakeover", false),
    Gate::beta("DeploymentReplicaSetTerminatingReplicas", true).fixed(),
    Gate::beta("DetectCacheInconsistency", true),
    Gate::locked("DisableAllocatorDualWrite", true),
    Gate::deprecated("DisableCPUQuotaWithExclusiveCPUs", true),
    Gate::locked("DisableNodeKubeProxyVersion", true),
    Gate::beta("EnvFiles", true).fixed(),
    Gate::alpha("EventedPLEG", false),
    Gate::locked("ExecProbeTimeout", true),
    Gate::beta("ExtendWebSocketsToKubelet", true).consulted(),
    Gate::locked("ExternalServiceAccountTokenSigner", true),
    Gate::alpha("GangScheduling", false),
    Gate::alpha("GenericWorkload", false).fixed(),
    Gate::locked("GitRepoVolumeDriver", false),
    Gate::beta("GracefulNodeShutdown", true),
    Gate::beta("GracefulNodeShutdownBasedOnPodPriority", true),
    Gate::beta("HPAConfigurableTolerance", true).fixed(),
    Gate::alpha("HPAScaleToZero", false).fixed(),
    Gate::beta("HostnameOverride", true).fixed(),
    Gate::locked("ImageMaximumGCAge", true),
    Gate::locked("ImageVolume", true),
    Gate::alpha("ImageVolumeWithDigest", false).fixed(),
    Gate::locked("InOrderInformers", true),
    Gate::beta("InOrderInformersBatchProcess", true),
    Gate::beta("InPlacePodLevelResourcesVerticalScaling", true).fixed(),
    Gate::locked("InPlacePodVerticalScaling", true),
    Gate::alpha("InPlacePodVerticalScalingExclusiveCPUs", false),
    Gate::alpha("InPlacePodVerticalScalingExclusiveMemory", false),
    Gate::beta("InPlacePodVerticalScalingInitContainers", true).fixed(),
    Gate::stable("InformerResourceVersion", true),
    Gate::locked("JobBackoffLimitPerIndex", true),
    Gate::locked("JobManagedBy", true),
    Gate::locked("JobPodReplacementPolicy", true),
    Gate::locked("JobSuccessPolicy", true),
    Gate::deprecated("KMSv1", false).consulted(),
    Gate::locked("KubeletCgroupDriverFromCRI", true),
    Gate::beta("KubeletCrashLoopBackOffMax", true),
    Gate::beta("KubeletEnsureSecretPulledImages", true),
    Gate::locked("KubeletFineGrainedAuthz", true),
    Gate::alpha("KubeletInUserNamespace", false),
    Gate::locked("KubeletPSI", true),
    Gate::locked("KubeletPodResourcesDynamicResources", true),
    Gate::locked("KubeletPodResourcesGet", true),
    Gate::deprecated("KubeletPodResourcesListUseActivePods", true),
    Gate::deprecated("KubeletRegistrationGetOnExistsOnly", false),
    Gate::beta("KubeletSeparateDiskGC", true),
    Gate::beta("KubeletServiceAccountTokenForCredentialProviders", true).fixed(),
    Gate::locked("KubeletTracing", true),
    Gate::beta("ListFromCacheSnapshot", true),
    Gate::beta("LocalStorageCapacityIsolationFSQuotaMonitoring", false),
    Gate::locked("LogarithmicScaleDown", true),
    Gate::alpha("LoggingAlphaOptions", false),
    Gate::beta("LoggingBetaOptions", true),
    Gate::alpha("ManifestBasedAdmissionControlConfig", false).fixed(),
    Gate::locked("MatchLabelKeysInPodAffinity", true),
    Gate::beta("MatchLabelKeysInPodTopologySpread", true).fixed(),
    Gate::beta("MatchLabelKeysInPodTopologySpreadSelectorMerge", true).fixed(),
    Gate::beta("MaxUnavailableStatefulSet", false).fixed(),
    Gate::alpha("MemoryQoS", false),
    Gate::locked("MultiCIDRServiceAllocator", true),
    Gate::locked("MutableCSINodeAllocatableCount", true),
    Gate::alpha("MutablePVNodeAffinity", false).fixed(),
    Gate::beta("MutablePodResourcesForSuspendedJobs", true).fixed(),
    Gate::beta("MutableSchedulingDirectivesForSuspendedJobs", true).fixed(),
    Gate::stable("MutatingAdmissionPolicy", true).fixed(),
    Gate::locked("NFTablesProxyMode", true),
    Gate::alpha("NativeHistograms", false),
    Gate::beta("NodeDeclaredFeatures", true).fixed(),
    Gate::locked("NodeInclusionPolicyInPodTopologySpread", true),
    Gate::locked("NodeLogQuery", true),
    Gate::locked("NodeSwap", true),
    Gate::beta("NominatedNodeNameForExpectation", true),
    Gate::beta("OpenAPIEnums", true).fixed(),
    Gate::beta("OpportunisticBatching", true),
    Gate::locked("OrderedNamespaceDeletion", true),
    Gate::beta("PLEGOnDemandRelist", true),
    Gate::alpha("PersistentVolumeClaimUnusedSinceTime", false),
    Gate::alpha("PodAndContainerStatsFromCRI", false),
    Gate::beta("PodCertificateRequest", false).fixed(),
    Gate::beta("PodDeletionCost", true).fixed(),
    Gate::alpha("PodLevelResourceManagers", false),
    Gate::beta("PodLevelResources", true).fixed(),
    Gate::locked("PodLifecycleSleepAction", true),
    Gate::locked("PodLifecycleSleepActionAllowZero", true),
    Gate::alpha("PodLogsQuerySplitStreams", false).fixed(),
    Gate::locked("PodObservedGenerationTracking", true),
    Gate::beta("PodReadyToStartContainersCondition", true),
    Gate::locked("PodSchedulingReadiness", true),
    Gate::beta("PodTopologyLabelsAdmission", true).fixed(),
    Gate::alpha("PodsAPI", false),
    Gate::beta("PortForwardWebsockets", true).fixed(),
    Gate::locked("PreferSameTrafficDistribution", true),
    Gate::beta("PreventStaticPodAPIReferences", true),
    Gate::locked("ProcMountType", true),
    Gate::alpha("QOSReserved", false),
    Gate::locked("RecoverVolumeExpansionFailure", true),
    Gate::locked("RecursiveReadOnlyMounts", true),
    Gate::alpha("ReduceDefaultCrashLoopBackOffDecay", false),
    Gate::locked("RelaxedDNSSearchValidation", true),
    Gate::locked("RelaxedEnvironmentVariableValidation", true),
    Gate::beta("RelaxedServiceNameValidation", true).fixed(),
    Gate::beta("ReloadKubeletClientCAFile", true),
    Gate::beta("ReloadKubeletServerCertificateFile", true),
    Gate::beta("RemoteRequestHeaderUID", true).fixed(),
    Gate::locked("ResilientWatchCacheInitialization", true),
    Gate::beta("ResourceHealthStatus", true).fixed(),
    Gate::beta("ResourceHealthStatusMessage", true).fixed(),
    Gate::beta("RestartAllContainersOnContainerExits", true).fixed(),
    Gate::locked("RetryGenerateName", true),
    Gate::beta("RotateKubeletServerCertificate", true),
    Gate::alpha("RuntimeClassInImageCriAPI", false),
    Gate::alpha("RuntimeClassInImageCriApi", false),
    Gate::locked("SELinuxChangePolicy", true),
    Gate::beta("SELinuxMount", false).fixed(),
    Gate::locked("SELinuxMountReadWriteOncePod", true),
    Gate::beta("SchedulerAsyncAPICalls", false),
    Gate::beta("SchedulerAsyncPreemption", true),
    Gate::beta("SchedulerPopFromBackoffQ", true),
    Gate::locked("SchedulerQueueingHints", true),
    Gate::locked("SeparateCacheWatchRPC", false),
    Gate::locked("SeparateTaintEvictionController", true),
    Gate::beta("ServiceAccountNodeAudienceRestriction", true).fixed(),
    Gate::locked("ServiceAccountTokenJTI", true),
    Gate::locked("ServiceAccountTokenNodeBinding", true),
    Gate::locked("ServiceAccountTokenNodeBindingValidation", true),
    Gate::locked("ServiceAccountTokenPodNodeInfo", true),
    Gate::deprecated("ServiceCIDRStatusFieldWiping", true).fixed(),
    Gate::alpha("ShardedListAndWatch", false).fixed(),
    Gate::locked("SidecarContainers", true),
    Gate::beta("SizeBasedListCostEstimate", true).consulted(),
    Gate::beta("StaleControllerConsistencyDaemonSet", true),
    Gate::beta("StaleControllerConsistencyJob", true),
    Gate::beta("StaleControllerConsistencyReplicaSet", true),
    Gate::beta("StaleControllerConsistencyStatefulSet", true),
    Gate::beta("StatefulSetSemanticRevisionComparison", true),
    Gate::alpha("StorageCapacityScoring", false),
    Gate::deprecated("StorageNamespaceIndex", true),
    Gate::alpha("StorageVersionAPI", false).fixed(),
    Gate::beta("StorageVersionHash", true).fixed(),
    Gate::beta("StorageVersionMigrator", false).fixed(),
    Gate::locked("StreamingCollectionEncodingToJSON", true),
    Gate::locked("StreamingCollectionEncodingToProtobuf", true),
    Gate::beta("StrictIPCIDRValidation", true).fixed(),
    Gate::locked("StructuredAuthenticationConfiguration", true),
    Gate::beta("StructuredAuthenticationConfigurationEgressSelector", true),
    Gate::beta("StructuredAuthenticationConfigurationJWKSMetrics", true).fixed(),
    Gate::locked("SupplementalGroupsPolicy", true),
    Gate::locked("SystemdWatchdog", true),
    Gate::alpha("TaintTolerationComparisonOperators", false).fixed(),
    Gate::beta("TokenRequestServiceAccountUIDValidation", true).fixed(),
    Gate::alpha("TopologyAwareWorkloadScheduling", false).fixed(),
    Gate::alpha("TopologyManagerPolicyAlphaOptions", false),
    Gate::beta("TopologyManagerPolicyBetaOptions", true),
    Gate::locked("TopologyManagerPolicyOptions", true),
    Gate::beta("TranslateStreamCloseWebsocketRequests", true).fixed(),
    Gate::beta("UnauthenticatedHTTP2DOSMitigation", true).consulted(),
    Gate::beta("UnknownVersionInteroperabilityProxy", true).consulted(),
    Gate::beta("UnlockWhileProcessingFIFO", true),
    Gate::alpha("UserNamespacesHostNetworkSupport", false).fixed(),
    Gate::locked("UserNamespacesSupport", true),
    Gate::locked("VolumeAttributesClass", true),
    Gate::alpha("VolumeLimitScaling", false).fixed(),
    Gate::beta("WatchCacheInitializationPostStartHook", true),
    Gate::beta("WatchList", true).fixed(),
    Gate::beta("WatchListClient", true),
    Gate::locked("WinDSR", true),
    Gate::locked("WinOverlay", true),
    Gate::alpha("WindowsCPUAndMemoryAffinity", false),
    Gate::beta("WindowsGracefulNodeShutdown", true),
    Gate::deprecated("WindowsHostNetwork", false),
    Gate::alpha("WorkloadAwarePreemption", false).fixed(),
    Gate::alpha("WorkloadWithJob", false).fixed(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(GATES.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn explicit_gate_wins_over_its_stage_and_that_over_the_default() {
        let gates = FeatureGates::parse(["AllBeta=false,kube:WatchList=true", "AllAlpha=true"])
            .expect("known gates");
        assert!(gates.enabled("WatchList"));
        assert!(!gates.enabled("OpenAPIEnums"));
        assert!(gates.enabled("HPAScaleToZero"));
        assert!(gates.enabled("SidecarContainers"));
        assert!(!gates.enabled("NoSuchGate"));
    }

    #[test]
    fn fixed_gates_keep_their_defaults() {
        let check = |value: &str| {
            FeatureGates::parse([value])
                .expect(value)
                .check_effect()
                .map_err(|why| why.to_string())
        };
        for fine in [
            "",
            "WatchList=true,HPAScaleToZero=false",
            "AllAlpha=false",
            "KubeletSeparateDiskGC=false",
            "SchedulerAsyncAPICalls=true",
            "APIResponseCompression=false,ConstrainedImpersonation=false,AllowParsingUserUIDFromCertAuth=false",
        ] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        let refused =
            check("HPAScaleToZero=true,WatchList=false,EventedPLEG=true").expect_err("refused");
        let want = "--feature-gates: HPAScaleToZero=true,WatchList=false is not supported: \
                    this server behaves as with the default and knows no other way";
        assert_eq!(refused, want);
        for (all, one) in [
            ("AllAlpha=true", "CBORServingAndStorage=true"),
            ("AllBeta=true", "PodCertificateRequest=true"),
            ("AllBeta=false", "WatchList=false"),
        ] {
            assert!(check(all).expect_err(all).contains(one), "{all}");
        }
    }

    /// The table marks no gate as consulted that is not, and the program consults none that the
    /// table does not know.
    #[test]
    fn the_gates_that_are_consulted_are_those_of_the_table() {
        let mut asked = std::collections::BTreeSet::new();
        let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("flags/gates.rs") {
                    let text = std::fs::read_to_string(&path).unwrap_or_default();
                    let names = text
                        .split(".enabled(\"")
                        .skip(1)
                        .filter_map(|rest| rest.split('"').next());
                    asked.extend(names.map(str::to_owned));
                }
            }
        }
        let consulted: Vec<&str> = GATES
            .iter()
            .filter(|gate| gate.effect == Effect::Consulted)
            .map(|gate| gate.name)
            .collect();
        assert_eq!(
            asked.iter().map(String::as_str).collect::<Vec<_>>(),
            consulted
        );
        assert!(
            GATES
                .iter()
                .all(|gate| gate.stage != Stage::Locked || gate.effect == Effect::Elsewhere)
        );
    }

    #[test]
    fn the_readme_names_the_gates_that_are_consulted() {
        let readme = include_str!("../../../README.md");
        let (_, rest) = readme.split_once("to their defaults, except").expect("it");
        let (list, _) = rest.split_once("`.").expect("an end");
        let named: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        let consulted: Vec<&str> = GATES
            .iter()
            .filter(|gate| gate.effect == Effect::Consulted)
            .map(|gate| gate.name)
            .collect();
        assert_eq!(named, consulted);
    }

    #[test]
    fn mistakes_are_named() {
        for (value, message) in [
            ("Nope=true", "unrecognized feature gate: Nope"),
            (
                "SidecarContainers=false",
                "cannot set feature gate SidecarContainers to false, feature is locked to true",
            ),
            (
                "WatchList",
                r#"invalid argument "WatchList" for "--feature-gates" flag: missing bool value for WatchList"#,
            ),
        ] {
            assert_eq!(
                FeatureGates::parse([value]).expect_err(value).to_string(),
                message
            );
        }
    }
}
