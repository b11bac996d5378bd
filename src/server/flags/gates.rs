//! Feature gates: the names that v1.36 knows, their stages and defaults, and what a command line makes of them.

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

#[derive(Clone, Copy, Debug)]
struct Gate {
    name: &'static str,
    default: bool,
    stage: Stage,
}

impl Gate {
    const fn new(name: &'static str, default: bool, stage: Stage) -> Self {
        Self { name, default, stage }
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

/// What the command line says of feature gates. The component prefix (`kube:`) is understood; others are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<String, bool>);

impl FeatureGates {
    /// Reads the values of `--feature-gates`, each a comma-separated list of `[component:]name=bool`.
    ///
    /// # Errors
    /// An unknown gate, a locked one set otherwise, or something that is not a boolean (component-base `featuregate`).
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Self, FlagError> {
        let mut set = BTreeMap::new();
        for pair in values.into_iter().flat_map(|value| value.split(',')).map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| invalid(pair, format!("missing bool value for {pair}")))?;
            let name = match name.split_once(':') {
                None | Some(("", _)) => name.trim_start_matches(':'),
                Some(("kube", name)) => name,
                Some((component, _)) => return Err(invalid(pair, format!("component not registered: {component}"))),
            };
            let value = super::parse_bool(value).ok_or_else(|| invalid(pair, format!("invalid value of {name}: {value}")))?;
            let gate = find(name).ok_or_else(|| FlagError::new(format!("unrecognized feature gate: {name}")))?;
            if gate.stage == Stage::Locked && gate.default != value {
                let message = format!("cannot set feature gate {name} to {value}, feature is locked to {}", gate.default);
                return Err(FlagError::new(message));
            }
            set.insert(name.to_owned(), value);
        }
        Ok(Self(set))
    }

    /// Whether the gate is on; false for a name that does not exist.
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

    /// The gates that were set to something else than their default.
    pub fn changed(&self) -> impl Iterator<Item = (&str, bool)> {
        let differs = |name: &str, value| find(name).is_some_and(|gate| gate.default != value);
        self.0.iter().map(|(name, value)| (name.as_str(), *value)).filter(move |(name, value)| differs(name, *value))
    }
}

fn find(name: &str) -> Option<&'static Gate> {
    GATES.binary_search_by(|gate| gate.name.cmp(name)).ok().and_then(|at| GATES.get(at))
}

fn invalid(value: &str, why: String) -> FlagError {
    FlagError::invalid("feature-gates", value, &why)
}

/// Sorted by name.
const GATES: &[Gate] = &[
    Gate::beta("APIResponseCompression", true),
    Gate::beta("APIServerIdentity", true),
    Gate::locked("APIServerTracing", true),
    Gate::alpha("APIServingWithRoutine", false),
    Gate::locked("AggregatedDiscoveryRemoveBetaType", true),
    Gate::alpha("AllAlpha", false),
    Gate::beta("AllBeta", false),
    Gate::deprecated("AllowDNSOnlyNodeCSR", false),
    Gate::deprecated("AllowInsecureKubeletCertificateSigningRequests", false),
    Gate::locked("AllowOverwriteTerminationGracePeriodSeconds", false),
    Gate::beta("AllowParsingUserUIDFromCertAuth", true),
    Gate::stable("AllowServiceExternalIPs", true),
    Gate::alpha("AllowUnsafeMalformedObjectDeletion", false),
    Gate::locked("AnonymousAuthConfigurableEndpoints", true),
    Gate::locked("AnyVolumeDataSource", true),
    Gate::beta("AtomicFIFO", true),
    Gate::locked("AuthorizeNodeWithSelectors", true),
    Gate::beta("AuthorizePodWebsocketUpgradeCreatePermission", true),
    Gate::locked("AuthorizeWithSelectors", true),
    Gate::locked("BtreeWatchCache", true),
    Gate::alpha("CBORServingAndStorage", false),
    Gate::alpha("CPUManagerPolicyAlphaOptions", false),
    Gate::beta("CPUManagerPolicyBetaOptions", true),
    Gate::locked("CPUManagerPolicyOptions", true),
    Gate::beta("CRDObservedGenerationTracking", true),
    Gate::locked("CRDValidationRatcheting", true),
    Gate::alpha("CRIListStreaming", false),
    Gate::locked("CSIServiceAccountTokenSecrets", true),
    Gate::alpha("CSIVolumeHealth", false),
    Gate::deprecated("ChangeContainerStatusOnKubeletRestart", false),
    Gate::beta("ClearingNominatedNodeNameAfterBinding", true),
    Gate::beta("ClientsAllowCARotation", true),
    Gate::alpha("ClientsAllowCBOR", false),
    Gate::beta("ClientsAllowTLSCacheGC", true),
    Gate::alpha("ClientsPreferCBOR", false),
    Gate::alpha("CloudControllerManagerWatchBasedRoutesReconciliation", false),
    Gate::alpha("CloudControllerManagerWebhook", false),
    Gate::beta("ClusterTrustBundle", false),
    Gate::beta("ClusterTrustBundleProjection", false),
    Gate::beta("ComponentFlagz", true),
    Gate::beta("ComponentStatusz", true),
    Gate::beta("ConcurrentWatchObjectDecode", false),
    Gate::locked("ConsistentListFromCache", true),
    Gate::beta("ConstrainedImpersonation", true),
    Gate::beta("ContainerCheckpoint", true),
    Gate::beta("ContainerRestartRules", true),
    Gate::alpha("ContainerStopSignals", false),
    Gate::beta("ContextualLogging", true),
    Gate::alpha("ControllerManagerReleaseLeaderElectionLockOnExit", false),
    Gate::beta("CoordinatedLeaderElection", false),
    Gate::alpha("CrossNamespaceVolumeDataSource", false),
    Gate::locked("CustomResourceFieldSelectors", true),
    Gate::locked("DRAAdminAccess", true),
    Gate::beta("DRAConsumableCapacity", true),
    Gate::beta("DRADeviceBindingConditions", true),
    Gate::beta("DRADeviceTaintRules", false),
    Gate::beta("DRADeviceTaints", true),
    Gate::beta("DRAExtendedResource", true),
    Gate::alpha("DRAListTypeAttributes", false),
    Gate::alpha("DRANodeAllocatableResources", false),
    Gate::beta("DRAPartitionableDevices", true),
    Gate::stable("DRAPrioritizedList", true),
    Gate::beta("DRAResourceClaimDeviceStatus", true),
    Gate::beta("DRAResourceClaimGranularStatusAuthorization", true),
    Gate::alpha("DRAResourcePoolStatus", false),
    Gate::beta("DRASchedulerFilterTimeout", true),
    Gate::alpha("DRAWorkloadResourceClaims", false),
    Gate::locked("DeclarativeValidation", true),
    Gate::beta("DeclarativeValidationBeta", true),
    Gate::deprecated("DeclarativeValidationTakeover", false),
    Gate::beta("DeploymentReplicaSetTerminatingReplicas", true),
    Gate::beta("DetectCacheInconsistency", true),
    Gate::locked("DisableAllocatorDualWrite", true),
    Gate::deprecated("DisableCPUQuotaWithExclusiveCPUs", true),
    Gate::locked("DisableNodeKubeProxyVersion", true),
    Gate::beta("EnvFiles", true),
    Gate::alpha("EventedPLEG", false),
    Gate::locked("ExecProbeTimeout", true),
    Gate::beta("ExtendWebSocketsToKubelet", true),
    Gate::locked("ExternalServiceAccountTokenSigner", true),
    Gate::alpha("GangScheduling", false),
    Gate::alpha("GenericWorkload", false),
    Gate::locked("GitRepoVolumeDriver", false),
    Gate::beta("GracefulNodeShutdown", true),
    Gate::beta("GracefulNodeShutdownBasedOnPodPriority", true),
    Gate::beta("HPAConfigurableTolerance", true),
    Gate::alpha("HPAScaleToZero", false),
    Gate::beta("HostnameOverride", true),
    Gate::locked("ImageMaximumGCAge", true),
    Gate::locked("ImageVolume", true),
    Gate::alpha("ImageVolumeWithDigest", false),
    Gate::locked("InOrderInformers", true),
    Gate::beta("InOrderInformersBatchProcess", true),
    Gate::beta("InPlacePodLevelResourcesVerticalScaling", true),
    Gate::locked("InPlacePodVerticalScaling", true),
    Gate::alpha("InPlacePodVerticalScalingExclusiveCPUs", false),
    Gate::alpha("InPlacePodVerticalScalingExclusiveMemory", false),
    Gate::beta("InPlacePodVerticalScalingInitContainers", true),
    Gate::stable("InformerResourceVersion", true),
    Gate::locked("JobBackoffLimitPerIndex", true),
    Gate::locked("JobManagedBy", true),
    Gate::locked("JobPodReplacementPolicy", true),
    Gate::locked("JobSuccessPolicy", true),
    Gate::deprecated("KMSv1", false),
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
    Gate::beta("KubeletServiceAccountTokenForCredentialProviders", true),
    Gate::locked("KubeletTracing", true),
    Gate::beta("ListFromCacheSnapshot", true),
    Gate::beta("LocalStorageCapacityIsolationFSQuotaMonitoring", false),
    Gate::locked("LogarithmicScaleDown", true),
    Gate::alpha("LoggingAlphaOptions", false),
    Gate::beta("LoggingBetaOptions", true),
    Gate::alpha("ManifestBasedAdmissionControlConfig", false),
    Gate::locked("MatchLabelKeysInPodAffinity", true),
    Gate::beta("MatchLabelKeysInPodTopologySpread", true),
    Gate::beta("MatchLabelKeysInPodTopologySpreadSelectorMerge", true),
    Gate::beta("MaxUnavailableStatefulSet", false),
    Gate::alpha("MemoryQoS", false),
    Gate::locked("MultiCIDRServiceAllocator", true),
    Gate::locked("MutableCSINodeAllocatableCount", true),
    Gate::alpha("MutablePVNodeAffinity", false),
    Gate::beta("MutablePodResourcesForSuspendedJobs", true),
    Gate::beta("MutableSchedulingDirectivesForSuspendedJobs", true),
    Gate::stable("MutatingAdmissionPolicy", true),
    Gate::locked("NFTablesProxyMode", true),
    Gate::alpha("NativeHistograms", false),
    Gate::beta("NodeDeclaredFeatures", true),
    Gate::locked("NodeInclusionPolicyInPodTopologySpread", true),
    Gate::locked("NodeLogQuery", true),
    Gate::locked("NodeSwap", true),
    Gate::beta("NominatedNodeNameForExpectation", true),
    Gate::beta("OpenAPIEnums", true),
    Gate::beta("OpportunisticBatching", true),
    Gate::locked("OrderedNamespaceDeletion", true),
    Gate::beta("PLEGOnDemandRelist", true),
    Gate::alpha("PersistentVolumeClaimUnusedSinceTime", false),
    Gate::alpha("PodAndContainerStatsFromCRI", false),
    Gate::beta("PodCertificateRequest", false),
    Gate::beta("PodDeletionCost", true),
    Gate::alpha("PodLevelResourceManagers", false),
    Gate::beta("PodLevelResources", true),
    Gate::locked("PodLifecycleSleepAction", true),
    Gate::locked("PodLifecycleSleepActionAllowZero", true),
    Gate::alpha("PodLogsQuerySplitStreams", false),
    Gate::locked("PodObservedGenerationTracking", true),
    Gate::beta("PodReadyToStartContainersCondition", true),
    Gate::locked("PodSchedulingReadiness", true),
    Gate::beta("PodTopologyLabelsAdmission", true),
    Gate::alpha("PodsAPI", false),
    Gate::beta("PortForwardWebsockets", true),
    Gate::locked("PreferSameTrafficDistribution", true),
    Gate::beta("PreventStaticPodAPIReferences", true),
    Gate::locked("ProcMountType", true),
    Gate::alpha("QOSReserved", false),
    Gate::locked("RecoverVolumeExpansionFailure", true),
    Gate::locked("RecursiveReadOnlyMounts", true),
    Gate::alpha("ReduceDefaultCrashLoopBackOffDecay", false),
    Gate::locked("RelaxedDNSSearchValidation", true),
    Gate::locked("RelaxedEnvironmentVariableValidation", true),
    Gate::beta("RelaxedServiceNameValidation", true),
    Gate::beta("ReloadKubeletClientCAFile", true),
    Gate::beta("ReloadKubeletServerCertificateFile", true),
    Gate::beta("RemoteRequestHeaderUID", true),
    Gate::locked("ResilientWatchCacheInitialization", true),
    Gate::beta("ResourceHealthStatus", true),
    Gate::beta("ResourceHealthStatusMessage", true),
    Gate::beta("RestartAllContainersOnContainerExits", true),
    Gate::locked("RetryGenerateName", true),
    Gate::beta("RotateKubeletServerCertificate", true),
    Gate::alpha("RuntimeClassInImageCriAPI", false),
    Gate::alpha("RuntimeClassInImageCriApi", false),
    Gate::locked("SELinuxChangePolicy", true),
    Gate::beta("SELinuxMount", false),
    Gate::locked("SELinuxMountReadWriteOncePod", true),
    Gate::beta("SchedulerAsyncAPICalls", false),
    Gate::beta("SchedulerAsyncPreemption", true),
    Gate::beta("SchedulerPopFromBackoffQ", true),
    Gate::locked("SchedulerQueueingHints", true),
    Gate::locked("SeparateCacheWatchRPC", false),
    Gate::locked("SeparateTaintEvictionController", true),
    Gate::beta("ServiceAccountNodeAudienceRestriction", true),
    Gate::locked("ServiceAccountTokenJTI", true),
    Gate::locked("ServiceAccountTokenNodeBinding", true),
    Gate::locked("ServiceAccountTokenNodeBindingValidation", true),
    Gate::locked("ServiceAccountTokenPodNodeInfo", true),
    Gate::deprecated("ServiceCIDRStatusFieldWiping", true),
    Gate::alpha("ShardedListAndWatch", false),
    Gate::locked("SidecarContainers", true),
    Gate::beta("SizeBasedListCostEstimate", true),
    Gate::beta("StaleControllerConsistencyDaemonSet", true),
    Gate::beta("StaleControllerConsistencyJob", true),
    Gate::beta("StaleControllerConsistencyReplicaSet", true),
    Gate::beta("StaleControllerConsistencyStatefulSet", true),
    Gate::beta("StatefulSetSemanticRevisionComparison", true),
    Gate::alpha("StorageCapacityScoring", false),
    Gate::deprecated("StorageNamespaceIndex", true),
    Gate::alpha("StorageVersionAPI", false),
    Gate::beta("StorageVersionHash", true),
    Gate::beta("StorageVersionMigrator", false),
    Gate::locked("StreamingCollectionEncodingToJSON", true),
    Gate::locked("StreamingCollectionEncodingToProtobuf", true),
    Gate::beta("StrictIPCIDRValidation", true),
    Gate::locked("StructuredAuthenticationConfiguration", true),
    Gate::beta("StructuredAuthenticationConfigurationEgressSelector", true),
    Gate::beta("StructuredAuthenticationConfigurationJWKSMetrics", true),
    Gate::locked("SupplementalGroupsPolicy", true),
    Gate::locked("SystemdWatchdog", true),
    Gate::alpha("TaintTolerationComparisonOperators", false),
    Gate::beta("TokenRequestServiceAccountUIDValidation", true),
    Gate::alpha("TopologyAwareWorkloadScheduling", false),
    Gate::alpha("TopologyManagerPolicyAlphaOptions", false),
    Gate::beta("TopologyManagerPolicyBetaOptions", true),
    Gate::locked("TopologyManagerPolicyOptions", true),
    Gate::beta("TranslateStreamCloseWebsocketRequests", true),
    Gate::beta("UnauthenticatedHTTP2DOSMitigation", true),
    Gate::beta("UnknownVersionInteroperabilityProxy", true),
    Gate::beta("UnlockWhileProcessingFIFO", true),
    Gate::alpha("UserNamespacesHostNetworkSupport", false),
    Gate::locked("UserNamespacesSupport", true),
    Gate::locked("VolumeAttributesClass", true),
    Gate::alpha("VolumeLimitScaling", false),
    Gate::beta("WatchCacheInitializationPostStartHook", true),
    Gate::beta("WatchList", true),
    Gate::beta("WatchListClient", true),
    Gate::locked("WinDSR", true),
    Gate::locked("WinOverlay", true),
    Gate::alpha("WindowsCPUAndMemoryAffinity", false),
    Gate::beta("WindowsGracefulNodeShutdown", true),
    Gate::deprecated("WindowsHostNetwork", false),
    Gate::alpha("WorkloadAwarePreemption", false),
    Gate::alpha("WorkloadWithJob", false),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(GATES.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn what_is_set_wins_over_its_stage_and_that_over_the_default() {
        let gates = FeatureGates::parse(["AllBeta=false,kube:WatchList=true", "AllAlpha=true"]).expect("known gates");
        assert!(gates.enabled("WatchList"));
        assert!(!gates.enabled("OpenAPIEnums"));
        assert!(gates.enabled("HPAScaleToZero"));
        assert!(gates.enabled("SidecarContainers"));
        assert!(!gates.enabled("NoSuchGate"));
    }

    #[test]
    fn mistakes_are_named() {
        for (value, message) in [
            ("Nope=true", "unrecognized feature gate: Nope"),
            ("SidecarContainers=false", "cannot set feature gate SidecarContainers to false, feature is locked to true"),
            ("WatchList", r#"invalid argument "WatchList" for "--feature-gates" flag: missing bool value for WatchList"#),
        ] {
            assert_eq!(FeatureGates::parse([value]).expect_err(value).to_string(), message);
        }
    }
}
