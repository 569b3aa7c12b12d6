//! Feature gates that affect allocation.

/// The feature gates that are on. The default is that of Kubernetes 1.37.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gates {
    /// `DRAAdminAccess`.
    pub admin_access: bool,
    /// `DRADeviceCompatibilityGroups`.
    pub compatibility_groups: bool,
    /// `DRAConsumableCapacity`.
    pub consumable_capacity: bool,
    /// `DRADerivedAttributes`.
    pub derived_attributes: bool,
    /// `DRADeviceBindingConditions`.
    pub binding_conditions: bool,
    /// `DRADeviceTaints`.
    pub device_taints: bool,
    /// `DRADeviceTaintRules`.
    pub device_taint_rules: bool,
    /// `DRAFractionalCapacityRange`.
    pub fractional_capacity_range: bool,
    /// `DRAListTypeAttributes`.
    pub list_type_attributes: bool,
    /// `DRAOptionalNodeOperations`.
    pub optional_node_operations: bool,
    /// `DRAPartitionableDevices`.
    pub partitionable_devices: bool,
    /// `DRAPrioritizedList`.
    pub prioritized_list: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            admin_access: true,
            compatibility_groups: false,
            consumable_capacity: true,
            derived_attributes: false,
            binding_conditions: true,
            device_taints: true,
            device_taint_rules: true,
            fractional_capacity_range: true,
            list_type_attributes: false,
            optional_node_operations: false,
            partitionable_devices: true,
            prioritized_list: true,
        }
    }
}

impl Gates {
    /// All gates on, for objects that an API server has stored: it drops the fields of a gate that is off, so that a field that is
    /// there was served.
    pub const SERVED: Self = Self {
        admin_access: true,
        compatibility_groups: true,
        consumable_capacity: true,
        derived_attributes: true,
        binding_conditions: true,
        device_taints: true,
        device_taint_rules: true,
        fractional_capacity_range: true,
        list_type_attributes: true,
        optional_node_operations: true,
        partitionable_devices: true,
        prioritized_list: true,
    };

    /// All gates off.
    pub const NONE: Self = Self {
        admin_access: false,
        compatibility_groups: false,
        consumable_capacity: false,
        derived_attributes: false,
        binding_conditions: false,
        device_taints: false,
        device_taint_rules: false,
        fractional_capacity_range: false,
        list_type_attributes: false,
        optional_node_operations: false,
        partitionable_devices: false,
        prioritized_list: false,
    };

    /// Returns every gate with its name in Kubernetes.
    pub fn by_name(&mut self) -> [(&'static str, &mut bool); 12] {
        [
            ("DRAAdminAccess", &mut self.admin_access),
            ("DRADeviceCompatibilityGroups", &mut self.compatibility_groups),
            ("DRAConsumableCapacity", &mut self.consumable_capacity),
            ("DRADerivedAttributes", &mut self.derived_attributes),
            ("DRADeviceBindingConditions", &mut self.binding_conditions),
            ("DRADeviceTaints", &mut self.device_taints),
            ("DRADeviceTaintRules", &mut self.device_taint_rules),
            ("DRAFractionalCapacityRange", &mut self.fractional_capacity_range),
            ("DRAListTypeAttributes", &mut self.list_type_attributes),
            ("DRAOptionalNodeOperations", &mut self.optional_node_operations),
            ("DRAPartitionableDevices", &mut self.partitionable_devices),
            ("DRAPrioritizedList", &mut self.prioritized_list),
        ]
    }
}
