/** Something that a careful client would not have done. */
export interface Finding {
  kind: 'charged-twice' | 'polled-too-fast' | 'key-at-file-host' | 'never-fetched' | 'failure-ignored';
  /** The tasks concerned. */
  tasks: string[];
  message: string;
}
