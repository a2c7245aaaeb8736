"""PURE: a frozen transcript in the forms that people take away: TXT, SRT, VTT, JSON, Markdown."""
