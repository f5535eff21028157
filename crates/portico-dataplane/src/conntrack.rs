//! Ends UDP (and SCTP) flows in the connection tracker whose endpoint is gone.
